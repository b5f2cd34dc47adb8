package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/store/removal"
)

// Text of tenants is printed on the operator's terminal without control characters.
func TestRemovalsArePrintable(t *testing.T) {
	evil := "x\x1b[2J\n\r\x9b0mü"
	var out bytes.Buffer
	r := heldRemovals{Leader: evil, Held: []removal.Hold{{ID: evil, Namespace: evil, Kind: evil, Count: 3, Kinds: map[string]int{evil: 3}, Names: []string{evil}}}}
	if err := r.write(&out, false); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\r\u009b") || strings.Count(got, "\n") != 6 || !strings.Contains(got, "ü") || !strings.Contains(got, "and 2 more") {
		t.Errorf("%q", got)
	}
}

// A removed command is refused by its name, with its replacement, whatever its arguments.
func TestReplacedCommands(t *testing.T) {
	for args, by := range map[string]string{"held --audit --data-dir x": "navarchctl removals list", "accept-removal --reason x 0123": "navarchctl removals accept ID"} {
		cmd := root()
		cmd.SetArgs(append([]string{"store"}, strings.Fields(args)...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), by) {
			t.Errorf("store %s: %v", args, err)
		}
	}
}

// proxy-status warns of held removals; without any, or from a replica that does not report them, it prints nothing.
func TestStatusWarnsOfRemovals(t *testing.T) {
	for _, older := range []bool{true, false} {
		statusWarnsOfRemovals(t, older)
	}
}

func statusWarnsOfRemovals(t *testing.T, older bool) {
	t.Helper()
	for held, want := range map[string]string{`{"held": [{"id": "x", "why": "undefined", "count": 7}]}`: "7 objects vanished", `{"held": []}`: "", "": ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == removalsPage && held != "" && older:
				fmt.Fprint(w, held)
			case r.URL.Path == fleetapi.Root+"removals" && held != "" && !older:
				fmt.Fprintf(w, `{"items": [%s]}`, held)
			case r.URL.Path == "/debug/syncz":
				fmt.Fprint(w, "[]")
			default:
				http.NotFound(w, r)
			}
		}))
		var out, warnings bytes.Buffer
		cmd := root()
		cmd.SetArgs([]string{"proxy-status", "--server", server.Listener.Addr().String()})
		cmd.SetOut(&out)
		cmd.SetErr(&warnings)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
		got, _, _ := strings.Cut(warnings.String(), "next: ")
		if (got != "") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", held, got, want)
		}
		server.Close()
	}
}

// The leader is found among the processes, and its answer is printed; a token is sent only to this machine, and only
// with a stated kubeconfig.
func TestAcceptFindsTheLeader(t *testing.T) {
	var asked []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		if status != http.StatusOK {
			http.Error(w, "says the leader", status)
			return
		}
		fmt.Fprintln(w, "5 objects are removed")
	}))
	defer server.Close()
	accept := func(args ...string) string {
		var out bytes.Buffer
		cmd := root()
		cmd.SetArgs(append([]string{"removals", "accept", "0a"}, args...))
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return err.Error()
		}
		return out.String()
	}
	here := server.Listener.Addr().String()
	if got := accept("--server", here); got != "5 objects are removed\n" || len(asked) != 1 || asked[0] != "POST /debug/removals?accept=0a " {
		t.Errorf("%q, asked %q", got, asked)
	}
	if got := accept("--server", "192.0.2.1:8080", "--kubeconfig", "any"); !strings.Contains(got, "is not on this machine") {
		t.Errorf("a token leaves the machine: %q", got)
	}
	status = http.StatusForbidden
	if got := accept("--server", here); !strings.Contains(got, "says the leader") {
		t.Errorf("refused: %q", got)
	}
	status = http.StatusMisdirectedRequest
	if got := accept("--server", here); !strings.Contains(got, "no process that answered is the leader") {
		t.Errorf("nobody leads: %q", got)
	}
}

// removals accept sends the token of a file or of standard input; without a token in it nothing is sent.
func TestAcceptsWithAToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("of-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, stdin, want, err string }{
		{path, "", "Bearer of-a-file", ""},
		{"-", " of-stdin\n", "Bearer of-stdin", ""},
		{"-", "\n", "", "--token-file -: no token in it"},
		{path + "x", "", "", "no such file"},
	} {
		got := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }))
		cmd := root()
		cmd.SetArgs([]string{"removals", "accept", "0123456789", "--server", server.Listener.Addr().String(), "--token-file", c.file})
		cmd.SetIn(strings.NewReader(c.stdin))
		cmd.SetOut(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.file, err, c.err)
		}
		if server.Close(); got != c.want {
			t.Errorf("%s: sent %q, want %q", c.file, got, c.want)
		}
	}
}
