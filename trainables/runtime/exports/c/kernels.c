/* One layer: channels, rows and columns of input and output, then of kernel, stride, dilation, and
   of zeros above and to the left. */
typedef struct {
  int inputs, height, width, outputs, rows, columns;
  int kernel_rows, kernel_columns, down, across, apart, beside, top, left, groups;
} net_shape;

/* --- functions --- */

static float net_clamp(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

static float net_relu(float x) { return x > 0.0f ? x : 0.0f; }

static float net_prelu(float x, float slope) { return x > 0.0f ? x : x * slope; }

static float net_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static float net_silu(float x) { return x / (1.0f + expf(-x)); }

static float net_hardsigmoid(float x) { return fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f; }

static float net_hardswish(float x) { return x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f; }

static float net_gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

static float net_gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

static int net_ones(uint32_t word) {
#if defined(__GNUC__)
  return __builtin_popcount(word);
#else
  word = word - ((word >> 1) & 0x55555555u);
  word = (word & 0x33333333u) + ((word >> 2) & 0x33333333u);
  return (int)((((word + (word >> 4)) & 0x0F0F0F0Fu) * 0x01010101u) >> 24);
#endif
}

/* Signs times signs. Channels of a group are bits of words, +1 is 1; a sum is the number of inputs
   less twice the number of those that differ. Zeros around the image are left out. */
static void net_binary_WIDTH(const net_shape *s, const float *x, const float *threshold,
                             const uintWIDTH_t *weights, float *y) {
  uintWIDTH_t *packed = (uintWIDTH_t *)net_bits;
  const int size = s->height * s->width, per_group = s->inputs / s->groups;
  const int words = (per_group + WIDTH - 1) / WIDTH, taps = s->kernel_rows * s->kernel_columns;
  const int outputs = s->outputs / s->groups;
  for (int p = 0; p < size; p++)
    for (int g = 0; g < s->groups; g++)
      for (int w = 0; w < words; w++) {
        uintWIDTH_t word = 0;
        for (int b = 0; b < WIDTH && w * WIDTH + b < per_group; b++) {
          const int c = g * per_group + w * WIDTH + b;
          if (x[c * size + p] >= threshold[c]) word |= (uintWIDTH_t)((uintWIDTH_t)1 << b);
        }
        packed[(p * s->groups + g) * words + w] = word;
      }
  for (int o = 0; o < s->outputs; o++)
    for (int i = 0; i < s->rows; i++)
      for (int j = 0; j < s->columns; j++) {
        int inside = 0, differ = 0;
        for (int k = 0; k < taps; k++) {
          const int row = i * s->down - s->top + k / s->kernel_columns * s->apart;
          const int column = j * s->across - s->left + k % s->kernel_columns * s->beside;
          if (row < 0 || row >= s->height || column < 0 || column >= s->width) continue;
          const uintWIDTH_t *a =
              packed + ((row * s->width + column) * s->groups + o / outputs) * words;
          const uintWIDTH_t *b = weights + (o * taps + k) * words;
          for (int w = 0; w < words; w++) differ += net_ones((uint32_t)(a[w] ^ b[w]));
          inside += per_group;
        }
        y[(o * s->rows + i) * s->columns + j] = (float)(inside - 2 * differ);
      }
}

/* Floats times signs, of which each is one bit, then the scale of the output. Weights whose bit in
   `kept` is 0 were pruned; without it none was. */
static void net_signed(const net_shape *s, const float *x, const uint8_t *bits,
                       const uint8_t *kept, const float *scale, float *y) {
  const int per_group = s->inputs / s->groups, outputs = s->outputs / s->groups;
  for (int o = 0; o < s->outputs; o++)
    for (int i = 0; i < s->rows; i++)
      for (int j = 0; j < s->columns; j++) {
        float sum = 0.0f;
        for (int c = 0; c < per_group; c++)
          for (int k = 0; k < s->kernel_rows; k++)
            for (int l = 0; l < s->kernel_columns; l++) {
              const int row = i * s->down - s->top + k * s->apart;
              const int column = j * s->across - s->left + l * s->beside;
              const int n = ((o * per_group + c) * s->kernel_rows + k) * s->kernel_columns + l;
              if (row < 0 || row >= s->height || column < 0 || column >= s->width) continue;
              const float v =
                  x[((o / outputs * per_group + c) * s->height + row) * s->width + column];
              if (kept && !(kept[n >> 3] >> (7 - (n & 7)) & 1)) continue;
              sum += bits[n >> 3] >> (7 - (n & 7)) & 1 ? v : -v;
            }
        y[(o * s->rows + i) * s->columns + j] = sum * scale[o];
      }
}

static void net_convolve(const net_shape *s, const float *x, const float *weights, float *y) {
  const int per_group = s->inputs / s->groups, outputs = s->outputs / s->groups;
  for (int o = 0; o < s->outputs; o++)
    for (int i = 0; i < s->rows; i++)
      for (int j = 0; j < s->columns; j++) {
        float sum = 0.0f;
        for (int c = 0; c < per_group; c++)
          for (int k = 0; k < s->kernel_rows; k++)
            for (int l = 0; l < s->kernel_columns; l++) {
              const int row = i * s->down - s->top + k * s->apart;
              const int column = j * s->across - s->left + l * s->beside;
              const int n = ((o * per_group + c) * s->kernel_rows + k) * s->kernel_columns + l;
              if (row < 0 || row >= s->height || column < 0 || column >= s->width) continue;
              sum += weights[n] *
                     x[((o / outputs * per_group + c) * s->height + row) * s->width + column];
            }
        y[(o * s->rows + i) * s->columns + j] = sum;
      }
}

static void net_bias(float *y, const float *bias, int rows, int channels, int inner) {
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < channels; c++)
      for (int i = 0; i < inner; i++) y[(r * channels + c) * inner + i] += bias[c];
}

/* Sizes of pools: channels, rows and columns of the input, rows and columns of the output, then of
   kernel, stride, dilation and padding. */
static void net_max_pool(const int *s, const float *x, float *y) {
  for (int c = 0; c < s[0]; c++)
    for (int i = 0; i < s[3]; i++)
      for (int j = 0; j < s[4]; j++) {
        float best = -INFINITY;
        for (int k = 0; k < s[5]; k++)
          for (int l = 0; l < s[6]; l++) {
            const int row = i * s[7] - s[11] + k * s[9], column = j * s[8] - s[12] + l * s[10];
            if (row < 0 || row >= s[1] || column < 0 || column >= s[2]) continue;
            best = fmaxf(best, x[(c * s[1] + row) * s[2] + column]);
          }
        y[(c * s[3] + i) * s[4] + j] = best;
      }
}

static void net_mean_pool(const int *s, const float *x, float *y, int padding_counts) {
  for (int c = 0; c < s[0]; c++)
    for (int i = 0; i < s[3]; i++)
      for (int j = 0; j < s[4]; j++) {
        float sum = 0.0f;
        int count = 0;
        for (int k = 0; k < s[5]; k++)
          for (int l = 0; l < s[6]; l++) {
            const int row = i * s[7] - s[11] + k, column = j * s[8] - s[12] + l;
            const int inside = row >= 0 && row < s[1] && column >= 0 && column < s[2];
            /* A window may reach beyond the padding where sizes are rounded up. */
            if (inside || (padding_counts && row < s[1] + s[11] && column < s[2] + s[12])) count++;
            if (inside) sum += x[(c * s[1] + row) * s[2] + column];
          }
        y[(c * s[3] + i) * s[4] + j] = sum / (float)count;
      }
}

static void net_adaptive_pool(const int *s, const float *x, float *y) {
  for (int c = 0; c < s[0]; c++)
    for (int i = 0; i < s[3]; i++)
      for (int j = 0; j < s[4]; j++) {
        const int top = i * s[1] / s[3], bottom = ((i + 1) * s[1] + s[3] - 1) / s[3];
        const int left = j * s[2] / s[4], right = ((j + 1) * s[2] + s[4] - 1) / s[4];
        float sum = 0.0f;
        for (int k = top; k < bottom; k++)
          for (int l = left; l < right; l++) sum += x[(c * s[1] + k) * s[2] + l];
        y[(c * s[3] + i) * s[4] + j] = sum / (float)((bottom - top) * (right - left));
      }
}

static void net_mean(const float *x, int outer, int middle, int inner, float share, float *y) {
  for (int o = 0; o < outer; o++)
    for (int i = 0; i < inner; i++) {
      float sum = 0.0f;
      for (int m = 0; m < middle; m++) sum += x[(o * middle + m) * inner + i];
      y[o * inner + i] = sum * share;
    }
}

static void net_norm(const float *x, int rows, int size, float eps, float *y) {
  for (int r = 0; r < rows; r++) {
    const float *in = x + r * size;
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < size; i++) mean += in[i];
    mean /= (float)size;
    for (int i = 0; i < size; i++) variance += (in[i] - mean) * (in[i] - mean);
    const float inverse = 1.0f / sqrtf(variance / (float)size + eps);
    for (int i = 0; i < size; i++) y[r * size + i] = (in[i] - mean) * inverse;
  }
}

static void net_softmax(const float *x, int rows, int size, float *y) {
  for (int r = 0; r < rows; r++) {
    float largest = -INFINITY, sum = 0.0f;
    for (int i = 0; i < size; i++) largest = fmaxf(largest, x[r * size + i]);
    for (int i = 0; i < size; i++) sum += y[r * size + i] = expf(x[r * size + i] - largest);
    for (int i = 0; i < size; i++) y[r * size + i] /= sum;
  }
}

static void net_attention(const float *q, const float *k, const float *v, int heads, int length,
                          int others, int width, int last, float scale, float *scores, float *y) {
  for (int h = 0; h < heads; h++)
    for (int i = 0; i < length; i++) {
      const float *query = q + (h * length + i) * width;
      float largest = -INFINITY, sum = 0.0f;
      for (int j = 0; j < others; j++) {
        float score = 0.0f;
        for (int w = 0; w < width; w++) score += query[w] * k[(h * others + j) * width + w];
        scores[j] = score * scale;
        largest = fmaxf(largest, scores[j]);
      }
      for (int j = 0; j < others; j++) sum += scores[j] = expf(scores[j] - largest);
      for (int l = 0; l < last; l++) {
        float value = 0.0f;
        for (int j = 0; j < others; j++) value += scores[j] * v[(h * others + j) * last + l];
        y[(h * length + i) * last + l] = value / sum;
      }
    }
}

static void net_matmul(const float *a, const float *b, int count, int m, int k, int n, float *y) {
  for (int c = 0; c < count; c++)
    for (int i = 0; i < m; i++)
      for (int j = 0; j < n; j++) {
        float sum = 0.0f;
        for (int l = 0; l < k; l++) sum += a[(c * m + i) * k + l] * b[(c * k + l) * n + j];
        y[(c * m + i) * n + j] = sum;
      }
}
