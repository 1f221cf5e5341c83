# What the `gpu` image needs of NVIDIA's container: Triton and its backends in their places, pip's constraints, and the
# entry point. Triton is the wheel's, the backends are the Python-based ones, and there is no CUDA.
ARG BASE
FROM ${BASE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates libpython3.11 python3 python3-pip \
 && ldconfig \
 && find /usr/local/bin -name 'pip*' -exec sed --in-place '1s|.*|#!/usr/bin/env python3|' {} +
COPY requirements/cpu.txt /opt/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    sed --quiet '/^\(nvidia-pytriton\|onnxruntime\)==/,/[^\\]$/p' /opt/cpu.txt >/opt/wheels.txt \
 && python3 -m pip install --no-deps --target /opt/wheels --requirement /opt/wheels.txt
COPY triton_backends /opt/tritonserver/backends/
# Triton finds its libraries relative to its folders.
RUN cd /opt/wheels \
 && cp --recursive pytriton/tritonserver /opt/ \
 && cp pytriton/tritonserver/python_backend_stubs/$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')/* \
       /opt/tritonserver/backends/python/ \
 && mv nvidia_pytriton.libs / \
 && rm -r pytriton \
 && sed --in-place '1i import sys; sys.path.append("/opt/wheels")' /opt/tritonserver/backends/onnxruntime/model.py \
 && install --directory /etc/pip /opt/nvidia \
 && echo 'numpy<1' >/etc/pip/constraint.txt \
 && printf '#!/bin/bash\nexec "$@"\n' >/opt/nvidia/nvidia_entrypoint.sh \
 && chmod +x /opt/nvidia/nvidia_entrypoint.sh
ENV PATH=/opt/tritonserver/bin:${PATH} PIP_CONSTRAINT=/etc/pip/constraint.txt
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
