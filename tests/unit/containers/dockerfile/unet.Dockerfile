ARG FROM_IMAGE_NAME=pytorch/pytorch:1.7.1-cuda11.0-cudnn8-runtime
#ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:21.02-py3
FROM ${FROM_IMAGE_NAME}


RUN apt-get update && \
    apt-get upgrade -y && \
    apt-get install -y git
RUN apt-get install -y vim

RUN pip install --upgrade pip
COPY requirements.txt /
RUN pip install --disable-pip-version-check -r /requirements.txt

ADD . /work/unet
RUN chmod +x /work/unet/*.sh
WORKDIR /work/unet

#RUN pip uninstall -y one; pip uninstall -y two; cd one;  pip install -v --global-option="--cpp_ext" .
