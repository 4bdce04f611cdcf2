// Stand-in of the dataset helpers: where each sample of a concatenation of documents begins.
#include <pybind11/numpy.h>

namespace py = pybind11;

static py::array_t<int32_t> build_sample_idx(const py::array_t<int32_t> &sizes, const py::array_t<int32_t> &documents,
                                             int32_t length, int32_t epochs, int64_t tokens, bool, int extra) {
  const int64_t samples = (epochs * tokens - extra) / length;
  py::array_t<int32_t> found({samples + 1, int64_t{2}});
  auto rows = found.mutable_unchecked<2>();
  for (int64_t sample = 0; sample <= samples; sample++) {
    int64_t token = sample * length;
    int32_t document = 0;
    while (token >= sizes.at(documents.at(document))) token -= sizes.at(documents.at(document++));
    rows(sample, 0) = document;
    rows(sample, 1) = static_cast<int32_t>(token);
  }
  return found;
}

PYBIND11_MODULE(helpers_cpp, m) { m.def("build_sample_idx_int32", &build_sample_idx); }
