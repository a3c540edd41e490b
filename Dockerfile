# One image for every function and for the migration job. FUNCTION_TARGET says which function a container is; the
# migration job runs /migrate instead.
#
# Both images that it begins from can be named by digest, and should be in prod: docs/deploy.md has the commands.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM ${GO_IMAGE} AS build
ENV CGO_ENABLED=0 GOTOOLCHAIN=local
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY functions functions
COPY migrations migrations
COPY shared shared
# The commit, for --version, GET /version, the log and the metric fencepost_build_info. The release is in the source.
ARG REVISION=
RUN go build -trimpath -ldflags="-s -w -X github.com/fencepost/fencepost/shared/buildinfo.revision=$REVISION" -o /out/ ./functions/server ./migrations/migrate

# Certificates, time zones and nothing that could be run: no shell, no package manager, no root.
FROM ${BASE_IMAGE}
COPY --from=build /out/server /out/migrate /
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/server"]
