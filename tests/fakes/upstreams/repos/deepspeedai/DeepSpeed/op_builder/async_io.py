BUILD_VAR = "DS_BUILD_AIO"

# aio_compatible = self.has_function('io_submit', ('aio', ))
