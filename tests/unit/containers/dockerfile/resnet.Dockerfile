ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:21.03-py3
FROM ${FROM_IMAGE_NAME}

ADD requirements.txt /work/
WORKDIR /work/
RUN pip install a-package
RUN pip install --no-cache-dir -r requirements.txt
ADD . /work/train
WORKDIR /work/train
