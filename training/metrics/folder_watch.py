"""Makes a run's files again if somebody deletes them, and reports at the end what is not saved."""

import logging
from dataclasses import dataclass, field

from training.disk import checkpoint
from training.disk.run_folder import RunFolder
from training.disk.run_parts import Progress
from training.metrics.tracker import Tracker

log = logging.getLogger(__name__)


@dataclass
class FolderWatch:
    folder: RunFolder
    progress: Progress
    tracker: Tracker
    # deleted files that could not be made again so far
    refused: list[str] = field(default_factory=list)

    def restore(self) -> None:
        """Makes files that were deleted during the run again, from memory, and logs a warning.

        Call it with each row. Raises SystemExit if another run has taken the folder.
        """
        if self.progress.saving and self.progress.saving.is_done():
            checkpoint.finish(self.progress)
        folder, gone = self.folder, self.missing()
        if not gone or folder.lost:
            return
        try:
            folder.make_again()
            self.tracker.make_again()
        except (ValueError, OSError) as error:  # the next row tries again
            if gone != self.refused:
                log.warning("%s: deleted: %s (%s)", folder.path, ", ".join(gone), error)
            self.refused = gone
            return
        self.refused = []
        evaluation = "; the next evaluation saves a checkpoint" * self.progress.owes_checkpoint
        log.warning(
            "%s: deleted during the run: %s; written again with all rows%s",
            *(folder.path, ", ".join(gone), evaluation),
        )

    def missing(self) -> list[str]:
        """Names of the run's deleted files. If ckpt.pt is one, a checkpoint is owed again."""
        if self.folder.lock is None:  # another rank watches the folder
            return []
        gone = [*self.folder.missing(), *self.tracker.missing()]
        saved = self.progress.saved_iteration is not None and self.progress.saving is None
        if saved and not (self.folder.path / "ckpt.pt").exists():
            self.progress.owes_checkpoint, self.progress.saved_iteration = True, None
            gone.append("ckpt.pt")
        return gone

    def unsaved_message(self) -> str | None:
        """One line that says what is not on the disk and what is; None if nothing is missing.

        Call it after the tracker's finish().
        """
        folder, progress, lacking = self.folder.path, self.progress, self.tracker.unsaved_parts()
        if progress.owes_checkpoint:
            failed = f" ({progress.failed_saves} saves failed)" if progress.failed_saves else ""
            lacking = [f"the checkpoint of iteration {progress.iteration}{failed}", *lacking]
        if not lacking or self.folder.lost:
            return None
        safe = "there is no checkpoint"
        if (folder / "ckpt.pt").exists():
            safe = f"{folder}/ckpt.pt is whole, of iteration {progress.saved_iteration}"
        return f"out_dir={folder}: not on the disk: {', '.join(lacking)}; {safe}"
