package functions_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
)

// Every internal function refuses callers without the tasks' token. The headers of Cloud Tasks and the
// scheduler do not help, as every caller can send them.
func TestInternalFunctionsRefuseOthers(t *testing.T) {
	t.Parallel()
	h := build(t)
	app := h.opened(h.transferSettings()...)
	tasks := func(differs jwt.MapClaims) jwt.MapClaims { return with(claimsOf("tasks", true), differs) }
	old := jwt.MapClaims{"iat": time.Now().Add(-2 * time.Hour).Unix(), "exp": time.Now().Add(-time.Hour).Unix()}
	refused := map[string]struct {
		token string
		want  int
	}{
		"none":                {"", http.StatusUnauthorized},
		"expired":             {h.issuer.token(t, "internal", tasks(old)), http.StatusUnauthorized},
		"another audience":    {h.issuer.token(t, "public", tasks(nil)), http.StatusUnauthorized},
		"another issuer":      {h.issuer.token(t, "internal", tasks(jwt.MapClaims{"iss": "https://accounts.google.com"})), http.StatusUnauthorized},
		"forged":              {startIssuer(t).token(t, "internal", tasks(jwt.MapClaims{"iss": h.issuer.url})), http.StatusUnauthorized},
		"another account":     {h.issuer.token(t, "internal", tasks(jwt.MapClaims{"email": "ann@fencepost.example"})), http.StatusForbidden},
		"an address unproven": {h.issuer.token(t, "internal", tasks(jwt.MapClaims{"email_verified": false})), http.StatusForbidden},
	}
	seen := 0
	for _, pattern := range app.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if !strings.HasPrefix(path, "/internal/") {
			continue
		}
		seen++
		for name, c := range refused {
			check.Equal(t, fmt.Sprintf("%s with the token %q", pattern, name), fromTheCloud(t, c.token, method, h.url+path), c.want)
		}
		if got := fromTheCloud(t, h.issuer.token(t, "internal", tasks(nil)), method, h.url+path); got == http.StatusUnauthorized || got == http.StatusForbidden {
			t.Errorf("%s with the tasks' own token: got %d, want it let in", pattern, got)
		}
	}
	if seen < 7 {
		t.Errorf("internal functions: got %d, want at least 7", seen)
	}
}

// An advance waits for others before it takes its lease, as long as the setting says. A receipt task
// does not.
func TestOnlyAnAdvanceWaitsForOthers(t *testing.T) {
	t.Parallel()
	const wait = time.Second
	h := buildWithShop(t, "FENCEPOST_ADVANCE_BATCH_WAIT="+wait.String())
	takes := func(function string) time.Duration {
		began := time.Now()
		h.as("tasks", "POST", "/internal/"+function, map[string]any{"submitter": shopAccount}).wants(t, 204, "%s", function)
		return time.Since(began)
	}
	if got := takes("advance"); got < wait {
		t.Errorf("an advance took %v, want %v at least", got, wait)
	}
	fastest := takes("receipt")
	for range 4 { // the machine may be busy
		fastest = min(fastest, takes("receipt"))
	}
	if fastest >= wait {
		t.Errorf("a receipt task took %v, want less than %v", fastest, wait)
	}
}

// fromTheCloud sends the headers that Cloud Tasks and the scheduler send.
func fromTheCloud(t *testing.T, token, method, url string) (status int) {
	t.Helper()
	req := check.Value(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}")))(t)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-CloudTasks-QueueName": "advance", "X-CloudTasks-TaskName": "t", "X-CloudTasks-TaskRetryCount": "0",
		"X-CloudScheduler": "true", "X-CloudScheduler-JobName": "sweep",
	} {
		req.Header.Set(name, value)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp := check.Value(http.DefaultClient.Do(req))(t)
	_ = resp.Body.Close()
	return resp.StatusCode
}
