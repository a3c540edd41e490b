package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const address = "0x00000000000000000000000000000000000000a1"

// programs are those in Go and with curl. Each returns what it prints.
var programs = map[string]func(t *testing.T, list string) (string, error){
	"go": func(t *testing.T, list string) (string, error) {
		var out strings.Builder
		err := run(t.Context(), []string{list}, &out)
		if err != nil {
			out.WriteString(err.Error())
		}
		return out.String(), err
	},
	"curl": func(t *testing.T, list string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "bash", "payouts.sh", list).CombinedOutput()
		return string(out), err
	},
}

// A row is REFUSED only where neither this run nor an earlier one can have paid it.
func TestStateOfAPayoutThatIsNotAccepted(t *testing.T) {
	want := map[string]string{
		"400-INVALID_FIELD":       "REFUSED",
		"401-UNAUTHENTICATED":     "UNKNOWN +run this again",
		"403-FORBIDDEN":           "UNKNOWN +run this again",
		"404-UNKNOWN_SUBMITTER":   "UNKNOWN +run this again",
		"409-REQUEST_ID_CONFLICT": "REFUSED",
		"409-REQUEST_RECORDED":    "RECORDED +on the chain already: do not pay",
		"409-SUBMITTER_PROTECTED": "UNKNOWN +run this again",
		"403-POLICY_REFUSED":      "UNKNOWN +run this again",
		"422-OF_A_LATER_VERSION":  "REFUSED",
	}
	deployment(t, func(requestID string) (int, string) {
		status, code, _ := strings.Cut(requestID, "-")
		n, _ := strconv.Atoi(status)
		return n, code
	})
	lines := "requestId,to,wei\r\n"
	for requestID := range want {
		lines += requestID + "," + address + ",1\r\n"
	}
	list := write(t, lines)
	for language, pay := range programs {
		out, err := pay(t, list)
		if err == nil {
			t.Errorf("%s: want an exit status", language)
		}
		for requestID, state := range want {
			if !regexp.MustCompile(requestID + " .* " + state).MatchString(out) {
				t.Errorf("%s: %s: want %s in\n%s", language, requestID, state, out)
			}
		}
	}
}

// Each row is paid, also the last one if its line has no end. A list whose first line is a row is refused whole.
func TestEveryRowOfTheList(t *testing.T) {
	var posted []string
	deployment(t, func(requestID string) (int, string) {
		posted = append(posted, requestID)
		return http.StatusForbidden, "POLICY_REFUSED"
	})
	row := "last," + address + ",1"
	for language, pay := range programs {
		posted = nil
		out, err := pay(t, write(t, "requestId,to,wei\nfirst,"+address+",1\n"+row))
		if err == nil || strings.Join(posted, " ") != "first last" {
			t.Errorf("%s: got posts of %v, %v, want of both rows\n%s", language, posted, err, out)
		}
		posted = nil
		out, err = pay(t, write(t, row+"\n"))
		if err == nil || len(posted) > 0 || !strings.Contains(out, "want the line requestId,to,wei first") {
			t.Errorf("%s: without names: got posts of %v, %v, want an error\n%s", language, posted, err, out)
		}
	}
}

// deployment has every post refused, with the status and code that answer returns.
func deployment(t *testing.T, answer func(requestID string) (status int, code string)) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var intent struct{ RequestID string }
		if err := json.NewDecoder(r.Body).Decode(&intent); err != nil {
			t.Error(err)
		}
		status, code := answer(intent.RequestID)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"code":"`+code+`","detail":"why"}`)
	}))
	t.Cleanup(s.Close)
	t.Setenv("API", s.URL)
	t.Setenv("TOKEN", "token")
	t.Setenv("SUBMITTER", "eip155:1:"+address)
}

func write(t *testing.T, lines string) (list string) {
	t.Helper()
	list = filepath.Join(t.TempDir(), "list.csv")
	if err := os.WriteFile(list, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}
