// Unpacks what the page holds in gzip and base85, as profiling.report.packed wrote it.
"use strict";

const BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%:()*+-;,=.?@^_`{|}~";

function fromBase85(text) {
  const value = new Uint8Array(128);
  for (let digit = 0; digit < 85; digit++) value[BASE85.charCodeAt(digit)] = digit;
  const bytes = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
  for (let at = 0; at < text.length; at += 5) {
    let word = 0;
    for (let i = at; i < at + 5; i++) word = 85 * word + (i < text.length ? value[text.charCodeAt(i)] : 84);
    bytes.setUint32((4 * at) / 5, word);
  }
  return new Uint8Array(bytes.buffer, 0, Math.floor((4 * text.length) / 5));
}

async function unpackedBytes(text) {
  if (!window.DecompressionStream) throw new Error("This browser is too old to unpack this. The tables of the page have the numbers.");
  const stream = new Blob([fromBase85(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// Resolves to the text that the script element with this id holds.
async function unpackedText(id) {
  return new TextDecoder().decode(await unpackedBytes(document.getElementById(id).textContent));
}
