package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/problem"
)

// Mistyped commands, flags and numbers of arguments are errors that name what was meant, or the usage.
func TestMistyped(t *testing.T) {
	for args, want := range map[string]string{
		"authz chek":             `unknown command "chek" for "navarchctl authz"; did you mean check?`,
		"snapshot sav x.tgz":     "did you mean save?",
		"suggest sidecr":         "did you mean sidecar?",
		"experimental nosuch":    "its commands are authz, check,",
		"wait gateway a --timot": "unknown flag: --timot; did you mean --timeout?; usage: navarchctl wait ",
		"describe":               "accepts 2 arg(s), received 0; usage: navarchctl describe pod|",
	} {
		if _, _, err := ran(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if out, _, err := ran("authz"); err != nil || !strings.Contains(out, "navarchctl authz [command]") {
		t.Errorf("a group of commands without an argument prints no help: %v\n%s", err, out)
	}
}

// nextOf returns the command that a result suggests for a command with arguments.
func nextOf(t *testing.T, r rows, cmd *cobra.Command, args ...string) string {
	t.Helper()
	top := root()
	top.AddCommand(cmd)
	var said strings.Builder
	cmd.SetErr(&said)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if r.next != nil {
		r.next(cmd, short)
	}
	return said.String()
}

// A held removal leads to the list of removals, and a problem with a name to wait.
func TestNextOfProblems(t *testing.T) {
	for want, p := range map[string]inspect.Problem{
		"next: navarchctl removals list ":    {Object: "AuthorizationPolicy", Code: problem.Held},
		"next: navarchctl wait Gateway/b.a ": {Object: "Gateway a/b", Code: problem.Held},
		"next: navarchctl proxy-status ":     {Object: "", Code: problem.Held, Message: "no records"},
	} {
		cmd := &cobra.Command{Use: "again"}
		if got := nextOf(t, problemRows([]fleetapi.Problem{{Problem: p}}), cmd); !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}

// Commands that do not read a report are not suggested with --snapshot, and the analysis of files is suggested without
// it.
func TestNextWithAReport(t *testing.T) {
	ctx := context.WithValue(t.Context(), openedKey{}, &opened{})
	for words, want := range map[string]string{"apply -f x": "", "wait Gateway/a": "", "check": "",
		"problems":     "next: navarchctl problems --snapshot r.tgz  # x\n",
		"analyze -f x": "next: navarchctl analyze -f x  # x\n", "removals accept x": ""} {
		cmd := &cobra.Command{Use: "again"}
		cmd.SetContext(ctx)
		if got := nextOf(t, rows{next: nextIs("x", strings.Fields(words)...)}, cmd, "--snapshot", "r.tgz"); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
}

// A file of cases that cannot be decoded is refused with the case and the field, in words of YAML.
func TestCasesAreDecoded(t *testing.T) {
	for text, want := range map[string]string{
		"cases:\n- {name: one, want: {clusters: x}}": `cases[0] "one": want.clusters: has a value of type string, want a list`,
		"cases:\n- {name: ok}\n- {frm: x}":           `cases[1] "": unknown field "frm"`,
		"case: []":                                   `want YAML with the list cases: unknown field "case"`,
	} {
		if _, err := parseCases([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An address without a port, and one of another protocol, are refused with what is wrong with it.
func TestUnreachable(t *testing.T) {
	for _, c := range []struct{ address, err, want string }{
		{"127.0.0.1", "connection refused", "the address states no port: want HOST:PORT"},
		{"127.0.0.1:15010", `HTTP/1.x transport connection broken: malformed HTTP response "\x00"`,
			"the answer is not HTTP; is this the port of another protocol"},
		{"127.0.0.1:8080", "connection refused", "is navarchd running there"},
	} {
		if err := server(c.address, "--server", "").unreachable(errors.New(c.err)); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.address, err, c.want)
		}
	}
}

// A plan suggests to apply its objects only if they differ, no risk is high, and there is a cluster to apply them to.
func TestNextOfPlans(t *testing.T) {
	report := func(act preview.Act, risks ...preview.Risk) *preview.Report {
		return &preview.Report{Schema: preview.Schema, Objects: []preview.Reported{{Object: "Gateway a/b", Act: act}}, Risks: risks}
	}
	high := preview.Risk{Level: meaning.High.String()}
	for name, c := range map[string]struct {
		report     *preview.Report
		kubeconfig string
		want       bool
	}{
		"differs":    {report(preview.Changed), "k", true},
		"high risk":  {report(preview.Changed, high), "k", false},
		"equal":      {report(preview.Unchanged), "k", false},
		"no cluster": {report(preview.Changed), "", false},
	} {
		t.Setenv("KUBECONFIG", "")
		t.Setenv("HOME", t.TempDir())
		p := &planning{files: []string{"x.yaml"}, format: text}
		p.at.cluster.Kubeconfig = c.kubeconfig
		top, cmd := root(), &cobra.Command{Use: "again"}
		top.AddCommand(cmd)
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if err := p.print(cmd, c.report, change{}); err != nil || strings.Contains(out.String(), "apply -f x.yaml --wait") != c.want {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}
