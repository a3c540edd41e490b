package cloudtasks

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
)

// Limits and constants of HTTP tasks. Source: comments of HttpRequest.
const (
	longestURL     = 2083     // characters
	largestHeaders = 80 << 10 // bytes; they must be fewer
	userAgent      = "Google-Cloud-Tasks"
)

// newRequest makes the stored form of a task's HTTP request: default method, the
// service's User-Agent, no headers that are ignored. Names of headers keep their
// letter case, as recorded.
func newRequest(from *cloudtaskspb.Task) (*cloudtaskspb.HttpRequest, error) {
	r := from.GetHttpRequest()
	switch {
	case from.GetAppEngineHttpRequest() != nil:
		return nil, unsupported("App Engine tasks")
	case r == nil:
		return nil, invalid("Task.message_type is required.")
	case r.GetOauthToken() != nil:
		return nil, unsupported("oauth_token")
	}
	if err := checkURL(r.GetUrl()); err != nil {
		return nil, err
	}
	if r.HttpMethod == cloudtaskspb.HttpMethod_HTTP_METHOD_UNSPECIFIED {
		r.HttpMethod = cloudtaskspb.HttpMethod_POST
	}
	withBody := []cloudtaskspb.HttpMethod{cloudtaskspb.HttpMethod_POST, cloudtaskspb.HttpMethod_PUT, cloudtaskspb.HttpMethod_PATCH}
	switch _, known := cloudtaskspb.HttpMethod_name[int32(r.HttpMethod)]; {
	case !known:
		return nil, invalid("HttpRequest.httpMethod %d is unknown.", r.HttpMethod)
	case len(r.GetBody()) > 0 && !slices.Contains(withBody, r.HttpMethod):
		return nil, invalid("HttpRequest.body is allowed only with POST, PUT and PATCH.")
	}
	if err := setHeaders(r); err != nil {
		return nil, err
	}
	return r, nil
}

// checkURL checks what the service checks at creation, in its recorded words. A
// URL that cannot be parsed passes, and fails at dispatch.
func checkURL(url string) error {
	switch {
	case url == "":
		return invalid("HttpRequest.url is required.")
	case !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://"):
		return invalid("HttpTarget.url must start with 'http://' or 'https://'.")
	case len(url) > longestURL:
		return invalid("HttpRequest.url must have at most %d characters.", longestURL)
	}
	return nil
}

func setHeaders(r *cloudtaskspb.HttpRequest) error {
	kept := map[string]string{"User-Agent": userAgent}
	size := 0
	for name, value := range r.GetHeaders() {
		size += len(name) + len(value)
		if !ignored(name) {
			kept[name] = value
		}
	}
	if size >= largestHeaders {
		return invalid("HttpRequest.headers must have less than %d bytes.", largestHeaders)
	}
	r.Headers = kept
	return nil
}

// ignored names the headers a task cannot set: those the documentation lists and
// those only the service sets.
func ignored(header string) bool {
	name := http.CanonicalHeaderKey(header)
	return name == "Host" || name == "Content-Length" || name == "User-Agent" ||
		strings.HasPrefix(name, "X-Google-") || strings.HasPrefix(name, "X-Appengine-") || strings.HasPrefix(name, "X-Cloudtasks-")
}

// audience is the audience of a task's token: the URL where none was set.
func audience(r *cloudtaskspb.HttpRequest) string {
	return cmp.Or(r.GetOidcToken().GetAudience(), r.GetUrl())
}

// dispatchHeaders are the headers of the attempt about to start. The caller holds
// the queue's lock. Names, values and when each is there are recorded.
func (t *task) dispatchHeaders(queueID string) http.Header {
	h := make(http.Header, len(t.request.Headers)+8)
	for name, value := range t.request.Headers {
		h.Set(name, value)
	}
	if len(t.request.Body) > 0 && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set("X-CloudTasks-QueueName", queueID)
	h.Set("X-CloudTasks-TaskName", t.id)
	h.Set("X-CloudTasks-TaskRetryCount", strconv.Itoa(t.dispatches))
	h.Set("X-CloudTasks-TaskExecutionCount", strconv.Itoa(t.executions))
	h.Set("X-CloudTasks-TaskETA", seconds(t.dueAt))
	if t.dispatches > 0 {
		h.Set("X-CloudTasks-TaskPreviousResponse", strconv.Itoa(t.previous))
		h.Set("X-CloudTasks-TaskRetryReason", "")
	}
	return h
}

// seconds writes an instant as Unix seconds with six decimals.
func seconds(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMicro())/1e6, 'f', 6, 64)
}
