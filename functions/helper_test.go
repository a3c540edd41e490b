package functions_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/runbooks"
)

// ubscore is the trading core's program, built once.
var ubscore string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "functions")
	if err == nil {
		ubscore = filepath.Join(folder, "ubscore")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", ubscore, "../emulator/fake/ubscore/server").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the trading core:", err)
		os.Exit(1)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the tests provoke refusals, whose log lines would only distract
	code := m.Run()
	if err := runbooks.Unproven("functions"); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

const coreSecret = "secret_of_the_trading_core"

// core is a trading core's process.
type core struct {
	url     string
	process *os.Process
}

// startCore starts a trading core, with these settings too, that is killed when the test ends.
func startCore(t *testing.T, settings ...string) core {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), ubscore)
	c.Env = append([]string{"UBSCORE_FOLDER=" + t.TempDir(), "UBSCORE_SECRET=" + coreSecret, "PORT=0"}, settings...)
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	check.OK(t)(err)
	var told []string
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct{ Msg, Address string }
		told = append(told, lines.Text())
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // it ends with the process
			return core{"http://" + line.Address, c.Process}
		}
	}
	t.Fatalf("the trading core did not start: %s", strings.Join(told, "\n"))
	return core{}
}

// cloud is the task service: it accepts each task's name once, as Cloud Tasks does, and runs nothing.
type cloud struct {
	cloudtaskspb.UnimplementedCloudTasksServer
	address string

	mu    sync.Mutex
	tasks map[string]*cloudtaskspb.Task
}

// CreateTask accepts a task whose name is new.
func (c *cloud) CreateTask(_ context.Context, r *cloudtaskspb.CreateTaskRequest) (*cloudtaskspb.Task, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks[r.Task.Name] != nil {
		return nil, status.Error(codes.AlreadyExists, "Requested entity already exists")
	}
	c.tasks[r.Task.Name] = r.Task
	return r.Task, nil
}

// task returns the task whose name has the suffix; nil: there is none.
func (c *cloud) task(suffix string) *cloudtaskspb.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, task := range c.tasks {
		if strings.HasSuffix(name, suffix) {
			return task
		}
	}
	return nil
}

// about returns the names of the tasks whose bodies contain reqID.
func (c *cloud) about(reqID string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, task := range c.tasks {
		if strings.Contains(string(task.GetHttpRequest().GetBody()), reqID) {
			names = append(names, name)
		}
	}
	return names
}

func startCloud(t *testing.T) *cloud {
	t.Helper()
	listener := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &cloud{address: listener.Addr().String(), tasks: map[string]*cloudtaskspb.Task{}}
	server := grpc.NewServer()
	cloudtaskspb.RegisterCloudTasksServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return c
}

// issuer makes tokens and serves the key that verifies them.
type issuer struct {
	key *ecdsa.PrivateKey
	url string
}

func startIssuer(t *testing.T) issuer {
	t.Helper()
	i := issuer{key: check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)}
	server := httptest.NewServer(http.HandlerFunc(i.serveKey))
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

func (i issuer) serveKey(w http.ResponseWriter, _ *http.Request) {
	point, _ := i.key.PublicKey.Bytes()
	encode := base64.RawURLEncoding.EncodeToString
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
		"kid": "1", "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "x": encode(point[1:33]), "y": encode(point[33:]),
	}}})
}

// token returns a token for the audience, with these claims over the usual ones.
func (i issuer) token(t *testing.T, audience string, claims jwt.MapClaims) string {
	t.Helper()
	return i.signed(t, jwt.SigningMethodES256, i.key, audience, claims)
}

// signed is [issuer.token] signed by another method and key.
func (i issuer) signed(t *testing.T, method jwt.SigningMethod, key any, audience string, claims jwt.MapClaims) string {
	t.Helper()
	usual := jwt.MapClaims{"iss": i.url, "aud": audience, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	token := jwt.NewWithClaims(method, with(usual, claims))
	token.Header["kid"] = "1"
	return check.Value(token.SignedString(key))(t)
}

// answer is a function's answer.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

// is returns the status and the members of the body as text. A member is named by its path, such as outcome.status or
// acts.0.by.
func (a answer) is(paths ...string) string {
	text := fmt.Sprint(a.status)
	for _, path := range paths {
		text += fmt.Sprintf(" %v", a.member(path))
	}
	return text
}

// member returns the member at the path; nil: there is none.
func (a answer) member(path string) any {
	var value any = a.body
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(members)
		list, _ := value.([]any)
		value = object[name]
		if i, err := strconv.Atoi(name); err == nil && i < len(list) {
			value = list[i]
		}
	}
	return value
}

// rows returns the objects of a list in the body.
func (a answer) rows(list string) (all []members) {
	rows, _ := a.body[list].([]any)
	for _, row := range rows {
		all = append(all, row.(members))
	}
	return all
}

// wants ends the test if the answer has another status.
func (a answer) wants(t testing.TB, status int, what string, args ...any) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s: got %d %v, want %d", fmt.Sprintf(what, args...), a.status, a.body, status)
	}
}

// says reports each part that a text lacks.
func says(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: got %s, want %s in it", what, text, part)
		}
	}
}

type headerKey struct{}

// call makes one request with the context's headers. A text body is sent unchanged.
func call(t *testing.T, ctx context.Context, token, method, url string, body any) answer {
	t.Helper()
	content, ok := body.(string)
	if !ok && body != nil {
		content = string(check.Value(json.Marshal(body))(t))
	}
	r := check.Value(http.NewRequestWithContext(ctx, method, url, strings.NewReader(content)))(t)
	if header, ok := ctx.Value(headerKey{}).(http.Header); ok {
		r.Header = header.Clone()
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp := check.Value(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	text := check.Value(io.ReadAll(resp.Body))(t)
	a := answer{resp.StatusCode, resp.Header, map[string]any{}}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &a.body); err != nil {
			t.Fatalf("%s %s: got %s, want JSON", method, url, text)
		}
	}
	return a
}

// lines is a readable log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// size returns the number of bytes written so far.
func (l *lines) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}

// since returns the lines after the first size bytes in which the attribute has the value.
func (l *lines) since(size int, attribute, value string) (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range strings.Lines(l.b.String()[size:]) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && fmt.Sprint(line[attribute]) == value {
			found = append(found, line)
		}
	}
	return found
}

// find returns the first line in which the attribute has the value; nil: there is none.
func (l *lines) find(attribute, value string) map[string]any {
	for _, line := range l.since(0, attribute, value) {
		return line
	}
	return nil
}
