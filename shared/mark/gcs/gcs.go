// Package gcs stores the mark in Cloud Storage.
package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/fencepost/fencepost/shared/mark"
)

// callTimeout bounds one call with its repetitions.
const callTimeout = 5 * time.Second

// maxBytes is more than the size of any mark.
const maxBytes = 1 << 16

// Object is one object of a bucket.
type Object struct {
	client *storage.Client
	handle *storage.ObjectHandle
}

// Open prepares the object without connecting. An endpoint other than "" is the emulator's,
// http://host:port/storage/v1/, which needs no credentials.
func Open(ctx context.Context, bucket, name, endpoint string) (*Object, error) {
	options := []option.ClientOption{storage.WithJSONReads()}
	if endpoint != "" {
		options = append(options, option.WithEndpoint(endpoint), option.WithoutAuthentication())
	}
	client, err := storage.NewClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open the mark's storage: %w", err)
	}
	return &Object{client, client.Bucket(bucket).Object(name)}, nil
}

// Close closes the connections.
func (o *Object) Close() error {
	if o == nil {
		return nil
	}
	return o.client.Close()
}

// Read implements [mark.Object].
func (o *Object) Read(ctx context.Context) (seen mark.Observed, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := o.handle.NewReader(ctx)
	if errors.Is(err, storage.ErrObjectNotExist) {
		return mark.Observed{}, fmt.Errorf("%w: %w", mark.ErrNone, err)
	} else if err != nil {
		return mark.Observed{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	text, err := io.ReadAll(io.LimitReader(r, maxBytes))
	if err != nil {
		return mark.Observed{}, err
	}
	seen.Generation = r.Attrs.Generation
	if err := json.Unmarshal(text, &seen.Mark); err != nil || seen.ID == "" {
		return mark.Observed{}, fmt.Errorf("generation %d is not a mark: %q", seen.Generation, text[:min(len(text), 100)])
	}
	return seen, nil
}

// Write implements [mark.Object].
func (o *Object) Write(ctx context.Context, m mark.Mark, over int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	condition := storage.Conditions{GenerationMatch: over}
	if over == 0 {
		condition = storage.Conditions{DoesNotExist: true}
	}
	w := o.handle.If(condition).NewWriter(ctx)
	w.ContentType, w.CacheControl, w.ChunkSize = "application/json", "no-store", 0
	if _, err := w.Write(text); err != nil {
		return errors.Join(err, w.Close())
	}
	err = w.Close()
	if refused, ok := errors.AsType[*googleapi.Error](err); ok && refused.Code == http.StatusPreconditionFailed {
		return fmt.Errorf("%w: %w", mark.ErrMoved, err)
	}
	return err
}
