/* Stand-in of UCC's API 1.0: what OpenMPI's coll/ucc is compiled against, as far as it names it (open-mpi/ompi at v4.1.8,
 * ompi/mca/coll/ucc). Nothing of it works: UCC refuses to start, as where it has no transport. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define UCC_VERSION_STRING "1.4.4"
#define UCC_API_VERSION(major, minor) (((major) << 24) | ((minor) << 16))

typedef struct ucc_lib *ucc_lib_h;
typedef struct ucc_lib_config *ucc_lib_config_h;
typedef struct ucc_context *ucc_context_h;
typedef struct ucc_context_config *ucc_context_config_h;
typedef struct ucc_team *ucc_team_h;
typedef uint64_t ucc_count_t;
typedef uint64_t ucc_aint_t;
typedef uint64_t ucc_datatype_t;

typedef enum { UCC_OK = 0, UCC_INPROGRESS = 1, UCC_ERR_NOT_SUPPORTED = -1 } ucc_status_t;
typedef enum { UCC_THREAD_SINGLE, UCC_THREAD_FUNNELED, UCC_THREAD_MULTIPLE } ucc_thread_mode_t;
typedef enum { UCC_MEMORY_TYPE_HOST, UCC_MEMORY_TYPE_UNKNOWN = 8 } ucc_memory_type_t;
typedef enum { UCC_COLLECTIVE_EP_RANGE_UNDEFINED, UCC_COLLECTIVE_EP_RANGE_CONTIG } ucc_ep_range_type_t;

typedef enum {
  UCC_COLL_TYPE_ALLGATHER = 1 << 0,
  UCC_COLL_TYPE_ALLGATHERV = 1 << 1,
  UCC_COLL_TYPE_ALLREDUCE = 1 << 2,
  UCC_COLL_TYPE_ALLTOALL = 1 << 3,
  UCC_COLL_TYPE_ALLTOALLV = 1 << 4,
  UCC_COLL_TYPE_BARRIER = 1 << 5,
  UCC_COLL_TYPE_BCAST = 1 << 6,
  UCC_COLL_TYPE_GATHER = 1 << 9,
  UCC_COLL_TYPE_GATHERV = 1 << 10,
  UCC_COLL_TYPE_REDUCE = 1 << 11,
  UCC_COLL_TYPE_REDUCE_SCATTER = 1 << 12,
  UCC_COLL_TYPE_REDUCE_SCATTERV = 1 << 13,
  UCC_COLL_TYPE_SCATTER = 1 << 14,
  UCC_COLL_TYPE_SCATTERV = 1 << 15,
  UCC_COLL_TYPE_LAST
} ucc_coll_type_t;

typedef enum {
  UCC_OP_SUM,
  UCC_OP_PROD,
  UCC_OP_MAX,
  UCC_OP_MIN,
  UCC_OP_LAND,
  UCC_OP_LOR,
  UCC_OP_LXOR,
  UCC_OP_BAND,
  UCC_OP_BOR,
  UCC_OP_BXOR
} ucc_reduction_op_t;

enum {
  UCC_DT_INT8,
  UCC_DT_INT16,
  UCC_DT_INT32,
  UCC_DT_INT64,
  UCC_DT_INT128,
  UCC_DT_UINT8,
  UCC_DT_UINT16,
  UCC_DT_UINT32,
  UCC_DT_UINT64,
  UCC_DT_UINT128,
  UCC_DT_FLOAT16,
  UCC_DT_FLOAT32,
  UCC_DT_FLOAT64,
  UCC_DT_FLOAT128,
  UCC_DT_BFLOAT16,
  UCC_DT_FLOAT32_COMPLEX,
  UCC_DT_FLOAT64_COMPLEX,
  UCC_DT_FLOAT128_COMPLEX
};

enum {
  UCC_LIB_PARAM_FIELD_THREAD_MODE = 1 << 0,
  UCC_LIB_ATTR_FIELD_THREAD_MODE = 1 << 0,
  UCC_LIB_ATTR_FIELD_COLL_TYPES = 1 << 1,
  UCC_CONTEXT_PARAM_FIELD_OOB = 1 << 2,
  UCC_TEAM_PARAM_FIELD_EP = 1 << 1,
  UCC_TEAM_PARAM_FIELD_EP_RANGE = 1 << 3,
  UCC_TEAM_PARAM_FIELD_OOB = 1 << 6,
  UCC_TEAM_PARAM_FIELD_EP_MAP = 1 << 9,
  UCC_TEAM_PARAM_FIELD_ID = 1 << 10,
  UCC_COLL_ARGS_FIELD_FLAGS = 1 << 0,
  UCC_COLL_ARGS_FIELD_CB = 1 << 2,
  UCC_COLL_ARGS_FLAG_IN_PLACE = 1 << 0,
  UCC_COLL_ARGS_FLAG_COUNT_64BIT = 1 << 3,
  UCC_COLL_ARGS_FLAG_DISPLACEMENTS_64BIT = 1 << 4
};

typedef struct { uint64_t mask; ucc_thread_mode_t thread_mode; uint64_t coll_types; } ucc_lib_params_t;
typedef ucc_lib_params_t ucc_lib_attr_t;

typedef struct {
  ucc_status_t (*allgather)(void *from, void *to, size_t size, void *info, void **request);
  ucc_status_t (*req_test)(void *request);
  ucc_status_t (*req_free)(void *request);
  void *coll_info;
  uint32_t n_oob_eps;
  uint32_t oob_ep;
} ucc_oob_coll_t;

typedef struct { uint64_t mask; ucc_oob_coll_t oob; } ucc_context_params_t;

typedef enum { UCC_EP_MAP_FULL = 1, UCC_EP_MAP_STRIDED, UCC_EP_MAP_ARRAY, UCC_EP_MAP_CB } ucc_ep_map_type_t;
typedef struct {
  ucc_ep_map_type_t type;
  uint64_t ep_num;
  union {
    struct { uint64_t start; int64_t stride; } strided;
    struct { void *map; size_t elem_size; } array;
    struct { uint64_t (*cb)(uint64_t endpoint, void *context); void *cb_ctx; } cb;
  };
} ucc_ep_map_t;

typedef struct {
  uint64_t mask;
  uint64_t ep;
  ucc_ep_range_type_t ep_range;
  ucc_oob_coll_t oob;
  ucc_ep_map_t ep_map;
  uint64_t id;
} ucc_team_params_t;

typedef struct { void *buffer; ucc_count_t count; ucc_datatype_t datatype; ucc_memory_type_t mem_type; } ucc_coll_buffer_info_t;
typedef struct {
  void *buffer;
  ucc_count_t *counts;
  ucc_aint_t *displacements;
  ucc_datatype_t datatype;
  ucc_memory_type_t mem_type;
} ucc_coll_buffer_info_v_t;

typedef struct {
  uint64_t mask;
  ucc_coll_type_t coll_type;
  union { ucc_coll_buffer_info_t info; ucc_coll_buffer_info_v_t info_v; } src, dst;
  ucc_reduction_op_t op;
  uint64_t flags;
  uint64_t root;
  struct { void (*cb)(void *data, ucc_status_t status); void *data; } cb;
} ucc_coll_args_t;

typedef struct { ucc_status_t status; } ucc_coll_req_t;
typedef ucc_coll_req_t *ucc_coll_req_h;

const char *ucc_get_version_string(void);
const char *ucc_status_string(ucc_status_t status);
ucc_status_t ucc_lib_config_read(const char *prefix, const char *file, ucc_lib_config_h *config);
ucc_status_t ucc_lib_config_modify(ucc_lib_config_h config, const char *name, const char *value);
void ucc_lib_config_release(ucc_lib_config_h config);
ucc_status_t ucc_init_version(unsigned major, unsigned minor, const ucc_lib_params_t *params, ucc_lib_config_h config, ucc_lib_h *lib);
ucc_status_t ucc_lib_get_attr(ucc_lib_h lib, ucc_lib_attr_t *attributes);
ucc_status_t ucc_finalize(ucc_lib_h lib);
ucc_status_t ucc_context_config_read(ucc_lib_h lib, const char *file, ucc_context_config_h *config);
ucc_status_t ucc_context_config_modify(ucc_context_config_h config, const char *component, const char *name, const char *value);
void ucc_context_config_release(ucc_context_config_h config);
ucc_status_t ucc_context_create(ucc_lib_h lib, const ucc_context_params_t *params, ucc_context_config_h config, ucc_context_h *context);
ucc_status_t ucc_context_progress(ucc_context_h context);
ucc_status_t ucc_context_destroy(ucc_context_h context);
ucc_status_t ucc_team_create_post(ucc_context_h *contexts, uint32_t count, const ucc_team_params_t *params, ucc_team_h *team);
ucc_status_t ucc_team_create_test(ucc_team_h team);
ucc_status_t ucc_team_destroy(ucc_team_h team);
ucc_status_t ucc_collective_init(ucc_coll_args_t *args, ucc_coll_req_h *request, ucc_team_h team);
ucc_status_t ucc_collective_post(ucc_coll_req_h request);
ucc_status_t ucc_collective_finalize(ucc_coll_req_h request);

static inline ucc_status_t ucc_init(const ucc_lib_params_t *params, const ucc_lib_config_h config, ucc_lib_h *lib) {
  return ucc_init_version(1, 0, params, config, lib);
}
static inline ucc_status_t ucc_collective_test(ucc_coll_req_h request) { return request->status; }

#ifdef __cplusplus
}
#endif
