#include <boost/program_options.hpp>
#include <iostream>
extern "C" {
#include <cuda.h>
#include <nvml.h>
}
__global__ void copy(int *to, int *from) { to[threadIdx.x] = from[threadIdx.x]; }
int main(int argc, char **argv) {
  boost::program_options::options_description options("nvbandwidth");
  options.add_options()("help,h", "this");
  boost::program_options::variables_map values;
  boost::program_options::store(boost::program_options::parse_command_line(argc, argv, options), values);
  if (values.count("help")) return std::cout << options, 0;
  return cuInit(0) + nvmlInit_v2();
}
