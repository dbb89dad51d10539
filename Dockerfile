# datalens_tf on a CPU. The folder /data is where pictures and runs are mounted:
#
#   docker build -t datalens .
#   docker run --rm -v "$PWD:/data" datalens train --dataset pictures --output_dir runs/pictures
#   docker run --rm -v "$PWD:/data" -p 127.0.0.1:8501:8501 datalens \
#       serve runs/pictures --host 0.0.0.0 --server_names localhost --token_file token
FROM python:3.11-slim-bookworm

ENV HOME=/data PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=3
COPY . /src
RUN pip install --no-cache-dir "/src[eval,serving,dicom,heic]"
# Whoever the container runs as may write here, where nothing is mounted, too.
RUN mkdir -p /data && chmod 1777 /data
WORKDIR /data
USER 1000:1000
EXPOSE 8500 8501
ENTRYPOINT ["datalens"]
CMD ["--help"]
