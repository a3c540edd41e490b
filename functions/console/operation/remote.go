package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits of a call of the control address.
const (
	controlPatience = 10 * time.Second
	maxControl      = 1 << 20 // bytes of an answer
)

// remoteDrills are the drills of an emulator's control address.
type remoteDrills struct {
	base string
	http *http.Client
}

// RemoteDrills returns the drills that the emulator offers at its control address, such as http://127.0.0.1:7070, or at
// an address that leads there. It sends no request yet.
func RemoteDrills(control string) Drills {
	return remoteDrills{strings.TrimSuffix(control, "/"), &http.Client{Timeout: controlPatience}}
}

func (d remoteDrills) State(ctx context.Context) (state DrillState, err error) {
	text, err := d.call(ctx, http.MethodGet, "/drills")
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	return state, err
}

func (d remoteDrills) Start(ctx context.Context, name string, solve bool) error {
	_, err := d.call(ctx, http.MethodPost, fmt.Sprintf("/drills/%s?solve=%t", url.PathEscape(name), solve))
	return err
}

func (d remoteDrills) Stop(ctx context.Context) error {
	_, err := d.call(ctx, http.MethodDelete, "/drills")
	return err
}

// call returns the answer. The error has the text of a refusal.
func (d remoteDrills) call(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, d.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the emulator's control address does not answer; is the emulator still running? %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxControl))
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return text, err
}
