// paged_attention. A task is one sequence, one key-value head, one piece of at most kPieceRows
// query rows (a row is a query token and a head of the group, so that the group shares each key and
// value that is read) and one split of the context. It goes over the context in tiles of keys with
// an online softmax: m the greatest score so far, l the sum of exp(score - m), acc that of the
// values.
#pragma once

#include "kernels/cpu/vec.h"

namespace {

constexpr int64_t kTile = 32;
constexpr int64_t kPieceRows = 16;
constexpr int64_t kRowGroup = 4;  // rows that share a load in the inner loops
constexpr int64_t kMaxHeadSize = 256;
constexpr float kInfinity = __builtin_inff();

// What a task works on and in; 100 KB of stack.
template <class E>
struct Piece {
  typedef typename E::Storage T;

  const FwPagedAttentionArgs& a;
  int64_t sequence, kv_head, split;
  int64_t first_token, tokens;   // of the sequence, in the batch
  int64_t first_row, rows;       // within tokens * group
  int64_t group;                 // query heads to a key-value head
  int64_t keys_begin, keys_end;  // of this piece and split

  const T* keys[2][kTile];  // of this tile and of the next
  const T* values[2][kTile];
  float m[kPieceRows], l[kPieceRows];
  alignas(64) float query[kPieceRows * kMaxHeadSize];
  alignas(64) float acc[kPieceRows * kMaxHeadSize];
  alignas(64) float score[kPieceRows * kTile];
  alignas(64) float converted[kTile * kMaxHeadSize];

  explicit Piece(const FwPagedAttentionArgs& args) : a(args) {}

  int64_t Token(int64_t row) const { return (first_row + row) / group; }
  int64_t Head(int64_t row) const { return kv_head * group + (first_row + row) % group; }
  int64_t Position(int64_t row) const { return a.seq_lens[sequence] - tokens + Token(row); }
  int64_t FirstKey(int64_t row) const {
    return a.window > 0 ? Most(0, Position(row) + 1 - a.window) : 0;
  }
};

// Scores of R rows against C keys.
template <class E, int R, int C>
inline void Dot(const float* query, int64_t head_size, const typename E::Storage* const* keys,
                float* score) {
  Vec sum[R][C] = {};
  for (int64_t i = 0; i < head_size; i += kLanes) {
    Vec key[C];
    for (int c = 0; c < C; ++c) key[c] = E::Load(keys[c] + i);
    for (int r = 0; r < R; ++r) {
      const Vec q = Float32::Load(query + r * head_size + i);
      for (int c = 0; c < C; ++c) sum[r][c] += q * key[c];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) score[r * kTile + c] = SumLanes(sum[r][c]);
  }
}

inline void Prefetch(const void* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + i, 0, 2);
  }
}

// Scores of R rows against a tile.
template <class E, int R>
void DotTile(const float* query, int64_t head_size, const typename E::Storage* const* keys,
             int64_t count, float* score) {
  int64_t k = 0;
  for (; k + 2 <= count; k += 2) Dot<E, R, 2>(query, head_size, keys + k, score + k);
  if (k < count) Dot<E, R, 1>(query, head_size, keys + k, score + k);
}

// acc += weights * values, V vectors of each of R rows at once.
template <class E, int R, int V>
inline void AddColumns(const float* weight, const typename E::Storage* const* values, int64_t count,
                       float* acc, int64_t head_size) {
  Vec sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = Float32::Load(acc + r * head_size + v * kLanes);
  }
  for (int64_t k = 0; k < count; ++k) {
    Vec value[V];
    for (int v = 0; v < V; ++v) value[v] = E::Load(values[k] + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec w = Broadcast(weight[r * kTile + k]);
      for (int v = 0; v < V; ++v) sum[r][v] += w * value[v];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) Float32::Store(acc + r * head_size + v * kLanes, sum[r][v]);
  }
}

template <class E, int R>
void AddTile(const float* weight, const typename E::Storage* const* values, int64_t count,
             float* acc, int64_t head_size) {
  const typename E::Storage* column[kTile];
  int64_t i = 0;
  for (; i < head_size; i += 2 * kLanes) {
    for (int64_t k = 0; k < count; ++k) column[k] = values[k] + i;
    if (i + 2 * kLanes <= head_size) {
      AddColumns<E, R, 2>(weight, column, count, acc + i, head_size);
    } else {
      AddColumns<E, R, 1>(weight, column, count, acc + i, head_size);
    }
  }
}

// Runs step<R>(first row) over the rows in groups of kRowGroup and a rest.
template <class Step>
inline void RowGroups(int64_t rows, Step step) {
  int64_t r = 0;
  for (; r + kRowGroup <= rows; r += kRowGroup) step.template Run<4>(r);
  switch (rows - r) {
    case 1:
      step.template Run<1>(r);
      break;
    case 2:
      step.template Run<2>(r);
      break;
    case 3:
      step.template Run<3>(r);
      break;
    default:
      break;
  }
}

template <class E>
struct ScoreStep {
  const float* query;
  int64_t head_size;
  const typename E::Storage* const* keys;
  int64_t count;
  float* score;
  template <int R>
  void Run(int64_t r) {
    DotTile<E, R>(query + r * head_size, head_size, keys, count, score + r * kTile);
  }
};

template <class E>
struct ValueStep {
  const float* weight;
  const typename E::Storage* const* values;
  int64_t count;
  float* acc;
  int64_t head_size;
  template <int R>
  void Run(int64_t r) {
    AddTile<E, R>(weight + r * kTile, values, count, acc + r * head_size, head_size);
  }
};

// Rows of E as rows of floats, for pieces whose rows read each of them more than once.
template <class E>
void Convert(const typename E::Storage* const* from, int64_t count, int64_t head_size, float* to,
             const float** rows) {
  for (int64_t k = 0; k < count; ++k) {
    rows[k] = to + k * head_size;
    for (int64_t i = 0; i < head_size; i += kLanes) {
      Float32::Store(to + k * head_size + i, E::Load(from[k] + i));
    }
  }
}

template <class E, class As>
void ScoreTile(Piece<E>& p, const typename As::Storage* const* keys, int64_t count) {
  RowGroups(p.rows, ScoreStep<As>{p.query, p.a.head_size, keys, count, p.score});
}

template <class E, class As>
void ValueTile(Piece<E>& p, const typename As::Storage* const* values, int64_t count) {
  RowGroups(p.rows, ValueStep<As>{p.score, values, count, p.acc, p.a.head_size});
}

// One row's scores become weights exp(score - m); the row's sums move to the new m. Keys outside
// [begin, end) of the tile weigh nothing.
template <class E>
void SoftmaxRow(Piece<E>& p, int64_t row, int64_t begin, int64_t end) {
  float* score = p.score + row * kTile;
  for (int64_t k = 0; k < kTile; ++k) {
    if (k < begin || k >= end) score[k] = -kInfinity;
  }
  Vec most = Broadcast(p.m[row]);
  for (int64_t k = 0; k < kTile; k += kLanes) most = Max(Float32::Load(score + k), most);
  const float m = MaxLanes(most);
  if (m == -kInfinity) {  // nothing seen yet, or nothing but NaN
    const bool nan = begin < end;
    for (int64_t k = 0; k < kTile; ++k) score[k] = 0.0f;
    if (nan) p.l[row] = __builtin_nanf("");
    return;
  }
  Vec sum = {};
  for (int64_t k = 0; k < kTile; k += kLanes) {
    const Vec s = Float32::Load(score + k);
    const Vec w = Choose(s == -kInfinity, Vec{}, Exp(s - m));
    Float32::Store(score + k, w);
    sum += w;
  }
  if (m != p.m[row]) {
    const Vec factor = Exp(Broadcast(p.m[row] - m));
    float* acc = p.acc + row * p.a.head_size;
    for (int64_t i = 0; i < p.a.head_size; i += kLanes) {
      Float32::Store(acc + i, Float32::Load(acc + i) * factor);
    }
    p.l[row] *= factor[0];
    p.m[row] = m;
  }
  p.l[row] += SumLanes(sum);
}

template <class E>
int64_t LocateTile(Piece<E>& p, int64_t begin, int slot) {
  const FwPagedAttentionArgs& a = p.a;
  const int64_t count = Least(kTile, p.keys_end - begin);
  const int32_t* table = a.block_table + p.sequence * a.block_table_stride;
  const int64_t mask = (int64_t{1} << a.block_size_log2) - 1;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t position = begin + k;
    const int64_t block = table[position >> a.block_size_log2];
    assert(0 <= block && block < a.blocks);
    const int64_t row = (block << a.block_size_log2) + (position & mask);
    const int64_t offset = (row * a.kv_heads + p.kv_head) * a.head_size;
    p.keys[slot][k] = static_cast<const typename E::Storage*>(a.key_cache) + offset;
    p.values[slot][k] = static_cast<const typename E::Storage*>(a.value_cache) + offset;
  }
  return count;
}

template <class E>
void LoadQuery(Piece<E>& p) {
  const FwPagedAttentionArgs& a = p.a;
  for (int64_t r = 0; r < p.rows; ++r) {
    const typename E::Storage* from = static_cast<const typename E::Storage*>(a.query) +
                                      (p.first_token + p.Token(r)) * a.query_stride +
                                      p.Head(r) * a.query_head_stride;
    for (int64_t i = 0; i < a.head_size; i += kLanes) {
      Float32::Store(p.query + r * a.head_size + i, E::Load(from + i) * a.scale);
      Float32::Store(p.acc + r * a.head_size + i, Vec{});
    }
    p.m[r] = -kInfinity;
    p.l[r] = 0.0f;
  }
}

template <class E>
void OneTile(Piece<E>& p, int64_t begin, int64_t count, int slot) {
  const int64_t bytes = p.a.head_size * static_cast<int64_t>(sizeof(typename E::Storage));
  const bool convert = sizeof(typename E::Storage) < 4 && p.rows > kRowGroup;
  const float* rows[kTile];
  for (int64_t k = 0; k < count; ++k) Prefetch(p.values[slot][k], bytes);
  if (convert) {
    Convert<E>(p.keys[slot], count, p.a.head_size, p.converted, rows);
    ScoreTile<E, Float32>(p, rows, count);
  } else {
    ScoreTile<E, E>(p, p.keys[slot], count);
  }
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t low = Most(0, p.FirstKey(r) - begin);
    SoftmaxRow(p, r, low, Least(count, p.Position(r) + 1 - begin));
  }
  const int64_t next = begin + count;
  const int64_t ahead = next < p.keys_end ? LocateTile(p, next, slot ^ 1) : 0;
  for (int64_t k = 0; k < ahead; ++k) Prefetch(p.keys[slot ^ 1][k], bytes);
  if (convert) {
    Convert<E>(p.values[slot], count, p.a.head_size, p.converted, rows);
    ValueTile<E, Float32>(p, rows, count);
  } else {
    ValueTile<E, E>(p, p.values[slot], count);
  }
}

// The row's result, or with several splits its share for the second pass.
template <class E>
void StoreRows(Piece<E>& p) {
  const FwPagedAttentionArgs& a = p.a;
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t token = p.first_token + p.Token(r);
    const float* acc = p.acc + r * a.head_size;
    if (a.splits > 1) {
      const int64_t share = (token * a.heads + p.Head(r)) * a.splits + p.split;
      a.partial_max[share] = p.m[r];
      a.partial_sum[share] = p.l[r];
      __builtin_memcpy(a.partial_out + share * a.head_size, acc,
                       static_cast<unsigned long>(a.head_size) * sizeof(float));
      continue;
    }
    typename E::Storage* out = static_cast<typename E::Storage*>(a.out) + token * a.out_stride +
                               p.Head(r) * a.out_head_stride;
    const Vec total = Broadcast(p.l[r]);
    for (int64_t i = 0; i < a.head_size; i += kLanes) {
      E::Store(out + i, Float32::Load(acc + i) / total);
    }
  }
}

// The keys that any row of the piece attends to, cut to the split.
template <class E>
void CutKeys(Piece<E>& p) {
  const int64_t length = p.a.seq_lens[p.sequence];
  const int64_t tiles = (length + kTile - 1) / kTile;
  const int64_t share = (tiles + p.a.splits - 1) / p.a.splits * kTile;
  p.keys_begin = Most(p.FirstKey(0), p.split * share);
  p.keys_end = Least(p.Position(p.rows - 1) + 1, (p.split + 1) * share);
}

template <class E>
void RunPiece(Piece<E>& p) {
  CutKeys(p);
  LoadQuery(p);
  int slot = 0;
  int64_t count = p.keys_begin < p.keys_end ? LocateTile(p, p.keys_begin, slot) : 0;
  for (int64_t begin = p.keys_begin; begin < p.keys_end; slot ^= 1) {
    OneTile(p, begin, count, slot);
    begin += count;
    count = Least(kTile, p.keys_end - begin);
  }
  StoreRows(p);
}

// All tasks of a call. Threads take the next one when they are free, since tasks differ in length;
// which thread runs a task changes nothing in its result.
struct AttentionTasks {
  const FwPagedAttentionArgs* args;
  int64_t total;
  int64_t next;
};

inline int64_t PiecesOf(const FwPagedAttentionArgs& a, int64_t sequence) {
  const int64_t tokens = a.query_start_loc[sequence + 1] - a.query_start_loc[sequence];
  return (tokens * (a.heads / a.kv_heads) + kPieceRows - 1) / kPieceRows;
}

template <class E>
void AttentionTask(const FwPagedAttentionArgs& a, int64_t sequence, int64_t task) {
  Piece<E> p(a);
  p.sequence = sequence;
  p.split = task % a.splits;
  p.kv_head = task / a.splits % a.kv_heads;
  p.first_row = task / a.splits / a.kv_heads * kPieceRows;
  p.group = a.heads / a.kv_heads;
  p.first_token = a.query_start_loc[sequence];
  p.tokens = a.query_start_loc[sequence + 1] - p.first_token;
  p.rows = Least(kPieceRows, p.tokens * p.group - p.first_row);
  assert(0 < p.rows && p.first_token + p.tokens <= a.tokens);
  assert(a.head_size <= kMaxHeadSize && a.head_size % kLanes == 0);
  RunPiece(p);
}

template <class E>
void AttentionBody(int64_t, int64_t, void* context) {
  AttentionTasks& tasks = *static_cast<AttentionTasks*>(context);
  const FwPagedAttentionArgs& a = *tasks.args;
  int64_t sequence = 0;
  int64_t before = 0;  // tasks of the sequences before this one
  int64_t here = PiecesOf(a, 0) * a.kv_heads * a.splits;
  for (;;) {
    const int64_t task = __atomic_fetch_add(&tasks.next, 1, __ATOMIC_RELAXED);
    if (task >= tasks.total) return;
    while (task - before >= here) {
      before += here;
      assert(sequence + 1 < a.sequences);
      here = PiecesOf(a, ++sequence) * a.kv_heads * a.splits;
    }
    AttentionTask<E>(a, sequence, task - before);
  }
}

// Joins the splits of a token's heads: sum_s exp(m_s - m) acc_s / sum_s exp(m_s - m) l_s.
template <class E>
void JoinSplits(int64_t begin, int64_t end, void* context) {
  const FwPagedAttentionArgs& a = *static_cast<AttentionTasks*>(context)->args;
  for (int64_t row = begin; row < end; ++row) {
    const float* maxima = a.partial_max + row * a.splits;
    const float* sums = a.partial_sum + row * a.splits;
    float m = -kInfinity;
    for (int64_t s = 0; s < a.splits; ++s) m = maxima[s] > m ? maxima[s] : m;
    float factor[64];
    assert(a.splits <= 64);
    float total = 0.0f;
    for (int64_t s = 0; s < a.splits; ++s) {
      const bool empty = maxima[s] == -kInfinity && sums[s] == 0.0f;
      factor[s] = empty ? 0.0f : Exp(Broadcast(maxima[s] - m))[0];
      total += factor[s] * sums[s];
    }
    typename E::Storage* out = static_cast<typename E::Storage*>(a.out) +
                               row / a.heads * a.out_stride + row % a.heads * a.out_head_stride;
    for (int64_t i = 0; i < a.head_size; i += kLanes) {
      Vec sum = {};
      for (int64_t s = 0; s < a.splits; ++s) {
        sum += Float32::Load(a.partial_out + (row * a.splits + s) * a.head_size + i) * factor[s];
      }
      E::Store(out + i, sum / total);
    }
  }
}

void PagedAttention(const FwExec* exec, const FwPagedAttentionArgs* args) {
  AttentionTasks tasks = {args, 0, 0};
  for (int64_t s = 0; s < args->sequences; ++s) {
    tasks.total += PiecesOf(*args, s) * args->kv_heads * args->splits;
  }
  Parallel(exec, tasks.total, 1,
           ForDtype(args->dtype, AttentionBody<Float32>, AttentionBody<Float16>,
                    AttentionBody<BFloat16>),
           &tasks);
  if (args->splits == 1) return;
  Parallel(exec, args->tokens * args->heads, RowGrain(args->splits * args->head_size),
           ForDtype(args->dtype, JoinSplits<Float32>, JoinSplits<Float16>, JoinSplits<BFloat16>),
           &tasks);
}

}  // namespace
