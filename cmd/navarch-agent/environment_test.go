package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// parseEnv reads the same values from a file as a real shell that sources it.
func TestParseEnvIsAShell(t *testing.T) {
	const file = `# istioctl's
CANONICAL_SERVICE='web'
export A = nothing
`
	if _, err := parseEnv(file); err == nil {
		t.Error("a blank before = was taken")
	}
	text := "\n  # c\nA='{\"app\":\"x y\"}'\nB=\"q \\\"w\\\" \\\\ \\n\"\nexport C=a\\ b#c # end\nD=\nE=*\nF='a'\"b\"c\nG='$x'\n"
	rows, err := parseEnv(text)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", `set -af; . "$0"; for k in A B C D E F G; do eval "printf '%s=%s\\n' $k \"\$$k\""; done`, path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(rows, "\n") + "\n"; got != string(out) {
		t.Errorf("got\n%swant\n%s", got, out)
	}
}

func TestParseEnvNamesTheFault(t *testing.T) {
	for in, want := range map[string]string{
		"A=1\nB": "line 2: want KEY=value", "=x": "line 1: want KEY", "A=$(id)": "'$' outside", "A=`id`": "outside", "A=\"$x\"": "in double quotes",
		"A='x": "not closed", `A="x`: "not closed", "A=a b": "a blank outside", `A=\`: "backslash at the end", "A=a;id": "outside",
	} {
		if rows, err := parseEnv(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v does not name %q", in, rows, err, want)
		}
	}
}

func TestEnvironmentOfTheProcessWins(t *testing.T) {
	a := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(a, []byte("POD_NAMESPACE=file\nISTIO_SVC_IP=10.0.0.9\nISTIO_META_CLUSTER_ID=east"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, err := environment([]string{a}, []string{"POD_NAMESPACE=own", "POD_NAME=vm"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := identify("sidecar", sources{}, rows)
	if err != nil || id.node.Id != "sidecar~10.0.0.9~vm.own~own.svc.cluster.local" || id.headers["ClusterID"] != "east" {
		t.Errorf("%+v, %v", id, err)
	}
	if _, err := environment([]string{a + "x"}, nil); err == nil {
		t.Error("a file that was asked for may be absent")
	}
}

func FuzzParseEnv(f *testing.F) {
	f.Add("A='x'\nexport B=\"y\\\"\" # c\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := parseEnv(text)
		if err != nil {
			return
		}
		for _, row := range rows {
			key, value, ok := strings.Cut(row, "=")
			if !ok || key == "" || strings.ContainsAny(key, " \t\n'\"") || strings.ContainsAny(value, "\n\x00") && !strings.Contains(text, "\x00") {
				t.Fatalf("%q of %q", row, text)
			}
		}
	})
}
