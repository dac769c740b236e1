// What the caller hands over: a model, and a pass through it. `native.py` has the same structures.

#pragma once

#include <cstdint>

extern "C" {

// Of weights. The bits of a code; then OFFSETS if there are some; SUPER if scales and offsets are products of a byte and
// a factor for SUPER_BLOCK inputs; 16 if that many inputs share a scale, and not BLOCK.
enum Kind : int64_t { FLOAT32, BFLOAT16, FLOAT16, BITS8, BITS4, BITS6, BITS6_OFFSETS, BITS4_SUPER, BITS6_SUPER,
                      BITS6_SUPER_16, KINDS };

// The change that adapters make to the outputs of a matrix: B · (strengths · (A x)). Several adapters are concatenated.
// BITS8 stands for signed bytes; the factors of A's rows and B's columns are in `strengths` then.
struct LowRank {
  const void* a;           // (rank, in)
  const void* b;           // (panels of the matrix, count, PANEL): the columns of B that a panel of outputs has
  const int64_t* first;    // (panels,) the first of these columns; -1 for none
  const float* strengths;  // (rank,)
  int64_t rank, count;     // above 0, `count` at most `rank`
  int64_t kind;            // of A and B: FLOAT32, BFLOAT16 or BITS8
  int64_t a_bytes, b_bytes;
};

// Outputs of a matrix whose weights have one kind.
struct Part {
  const char* panels;  // ceil(out / PANEL) panels, each in the format of its kind
  int64_t out;
  int64_t kind;        // a Kind
  int64_t bytes;       // of all panels
};

struct Matrix {
  Part part[3];        // from the first output on
  int64_t parts;       // 1 to 3
  const float* bias;   // (out,) or null
  const float* norm;   // (in,) factors of the inputs, or null; for `qkv`, `gate`, `up` and `head` alone
  int64_t out, in;     // with coded weights, `in` is a multiple of their blocks' inputs
  const LowRank* low;  // or null; with panels of all parts
};

// A matrix (out, in) of coded weights as a GGUF file has it, to be rearranged into panels of so many outputs.
struct Stored {
  const uint8_t* rows;   // of blocks
  int64_t type;          // GGUF's number of it
  int64_t out, in;       // `in` is a multiple of a block's inputs
  int64_t row_bytes;     // of all rows
  const int64_t* order;  // (out,) the row that has each output; null if they are in this order
  int64_t outputs;       // of a panel, at most MOST_OUTPUTS
  char* panels;
  int64_t bytes;        // of all panels
  int64_t threads;
};

// Rows of a matrix of one part, to be decoded.
struct Rows {
  Part part;
  int64_t in;          // as of a matrix
  const int64_t* ids;  // (count,) of outputs
  int64_t count;
  float* rows;         // (count, in)
};

struct Layer {
  Matrix qkv;   // D -> (H + 2 key heads) · w; the first layer's may have other inputs, those of `entering`
  Matrix out;   // H · w -> D
  Matrix gate;  // D -> I, in one part
  Matrix up;    // D -> I, in one part, with the gate's norm
  Matrix down;  // I -> D
  // Weights of norms, or null: of each query and key, and of what attention and the feed-forward part add to the
  // residual stream, (D,).
  const float *q_norm, *k_norm, *after_attention, *after_feed_forward;
  int64_t table;  // of the rotation of queries and keys; -1 for none
  int64_t near;   // whether attention is limited to the window
  int64_t plain;  // whether there are no norms before attention and before the feed-forward part
};

// All sizes are above 0, `heads` a multiple of `key_heads`, `width` one of LANES up to WIDEST. Other numbers are finite.
struct Model {
  int64_t layers, dim, heads, key_heads, width, inner;
  int64_t turned;  // numbers of a head that the rotation turns: even, at most w; the first of them
  int64_t tables;  // of the rotation, from 0 on
  int64_t window;  // positions, up to its own, that an input attends to in layers that are `near`; above 0 if any is
  int64_t gelu;    // whether the gate is GELU (by tanh), not SiLU
  int64_t whole;   // whether the norms of queries and keys are over all heads, with (H · w,) weights, not (w,)
  int64_t rounded;  // whether products with coded weights round their inputs to 8 bits
  double eps;      // not below 0
  double attention, residual, logits;  // factors of scores, of what is added to the residual stream, and of logits
  double attention_cap, logit_cap;     // c limits x to c · tanh(x / c); 0 is no limit
  const Layer* layer;  // (layers,)
  Matrix head;         // D -> V
};

// One sequence: its cache, and the inputs that it advances by. Lines have different numbers of both.
struct Line {
  int64_t n, past;           // inputs, above 0; columns of the cache before them
  float* cache;              // keys of the first layer; `of_plane` further its values, then the second's keys
  int64_t of_plane, of_head;  // strides of the cache in numbers; a column's w numbers are contiguous
  int64_t cache_size;        // numbers from `cache` to the end of its memory
  const uint8_t* seen;       // (n, past + n) the columns that each input attends to; null is all up to itself
  const uint8_t* near;       // the same in layers that are `near`; given if `seen` is and the model has a window
};

struct Pass {
  int64_t lines, inputs, threads;  // above 0; `inputs` N is the sum of the lines' n
  const Line* line;                // (lines,), no two of one cache
  float* h;                        // (N, D): embeddings; overwritten by the residual stream, then the last output
  const float* entering;           // (N, in) the input of the first layer's q, k, v; null is h, normed
  int64_t entering_width;          // in
  const float *cos, *sin;          // (tables, N, turned)
  const int64_t* kept;             // indices of the inputs, of N, after which logits are computed
  int64_t kept_count;              // at most N
  float* logits;                   // (kept, V)
  const int64_t* watched;  // layers whose input residual stream is returned, ascending; `layers` is the last's output
  int64_t watched_count;
  float* features;  // (N, watched · D)
};

}  // extern "C"
