package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/mark"
)

// deployment is the Terraform output of the same name, and the API's base URL.
type deployment struct {
	API          string `json:"-"`
	Project      string
	Region       string
	Environment  string
	Instance     string  // of Cloud SQL
	MigrationJob string  `json:"migration_job"`
	Metrics      bool    // whether the functions export any
	Audience     string  // of callers' tokens, which cells share
	ArmorPreview bool    `json:"armor_preview"`
	LoggedShare  float64 `json:"logged_share"` // of requests, in the load balancer's log
	MarkBucket   string  `json:"mark_bucket"`  // of the mark outside the database
	Services     map[string]service
}

// service is one function.
type service struct {
	Name      string // of the Cloud Run service
	Public    bool
	Scheduled bool // called by the scheduler, whatever there is to do
}

func readDeployment(ctx context.Context, folder string) (d deployment, err error) {
	var outputs struct {
		API        struct{ Value string }
		Deployment struct{ Value *deployment }
	}
	text, err := command(ctx, "terraform", "-chdir="+folder, "output", "-json")
	if err == nil {
		err = json.Unmarshal(text, &outputs)
	}
	switch {
	case err != nil:
		return d, fmt.Errorf("read terraform output: %w", err)
	case outputs.Deployment.Value == nil || outputs.API.Value == "":
		return d, errors.New("terraform output has no deployment: run terraform apply with this version first")
	case outputs.Deployment.Value.Audience == "", outputs.Deployment.Value.MarkBucket == "":
		return d, errors.New("terraform output says too little: run terraform apply with this version first")
	case len(outputs.Deployment.Value.Services) == 0:
		return d, errors.New("no function is deployed yet: set image, and run terraform apply")
	}
	d = *outputs.Deployment.Value
	d.API = outputs.API.Value
	return d, nil
}

// command runs a program and returns its output. The error has what it wrote to stderr last: from "ERROR:"
// on, or the last line.
func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errs.String())
		from := strings.LastIndex(said, "ERROR:")
		if from < 0 {
			from = strings.LastIndex(said, "\n") + 1
		}
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, clip([]byte(said[from:])))
	}
	return out.Bytes(), nil
}

// entry is a line of the log.
type entry struct {
	Timestamp   time.Time
	TextPayload string
	HTTPRequest *struct{ Status int }
	Resource    struct {
		Labels struct {
			Service  string `json:"service_name"`
			Revision string `json:"revision_name"`
		}
	}
}

// readLog returns the lines of the last day that match, the newest first.
func (c *checker) readLog(ctx context.Context, filter string) (entries []entry) {
	text := steps.Value(command(ctx, "gcloud", "logging", "read", filter, "--project", c.deployment.Project, "--limit=200", "--freshness=1d", "--format=json"))
	steps.OK(json.Unmarshal(text, &entries))
	return entries
}

// readMark returns the mark outside the database.
func (c *checker) readMark(ctx context.Context) (m mark.Mark, err error) {
	defer steps.Return(&err)
	text := steps.Value(command(ctx, "gcloud", "storage", "cat", "gs://"+c.MarkBucket+"/"+mark.ObjectName, "--project", c.deployment.Project))
	if err := json.Unmarshal(text, &m); err != nil || m.ID == "" {
		return m, fmt.Errorf("got %s, want a mark", clip(text))
	}
	return m, nil
}

// idToken returns a token of a service account for the public API.
func (c *checker) idToken(ctx context.Context, account string) string {
	text := steps.Value(command(ctx, "gcloud", "auth", "print-identity-token", "--impersonate-service-account="+account, "--audiences="+c.deployment.Audience, "--include-email"))
	return strings.TrimSpace(string(text))
}

// hasPoint reports whether Cloud Monitoring has a point of the metric in the last five minutes.
func (c *checker) hasPoint(ctx context.Context, metric string) bool {
	token := steps.Value(command(ctx, "gcloud", "auth", "print-access-token"))
	address := fmt.Sprintf("%s/v1/projects/%s/location/global/prometheus/api/v1/query?query=%s", c.options.monitoring, c.deployment.Project, url.QueryEscape(metric))
	got := steps.Value(send(ctx, request{method: http.MethodGet, url: address, token: strings.TrimSpace(string(token))}))
	var result struct {
		Data struct{ Result []json.RawMessage }
	}
	if got.status != http.StatusOK {
		steps.Stopf("Cloud Monitoring answers %d: %s", got.status, clip(got.body))
	}
	steps.OK(json.Unmarshal(got.body, &result))
	return len(result.Data.Result) > 0
}

// request is one HTTP request.
type request struct {
	method, url, token string
	traceparent        string // a header; "": none
	body               []byte
}

type answer struct {
	status int
	body   []byte
}

// problem is the code of a function's refusal, or "" if no function answered.
func (a answer) problem() string {
	var p struct{ Code string }
	_ = json.Unmarshal(a.body, &p) // another body has no code
	return p.Code
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, clip(a.body)) }

const maxAnswer = 1 << 20

func send(ctx context.Context, r request) (_ answer, err error) {
	defer steps.Return(&err)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req := steps.Value(http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body)))
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	if r.traceparent != "" {
		req.Header.Set("Traceparent", r.traceparent)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	response := steps.Value(http.DefaultClient.Do(req))
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return answer{response.StatusCode, body}, err
}

// clip returns the beginning of a text in one line.
func clip(text []byte) string {
	const limit = 120
	line := strings.Join(strings.Fields(string(text)), " ")
	if len(line) > limit {
		line = line[:limit] + " …"
	}
	return line
}
