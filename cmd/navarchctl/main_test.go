package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/ca/attest"
)

var update = flag.Bool("update", false, "rewrite what `cmp stdout FILE` compares with in the scripts")

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"navarchctl": main}) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"rendered": rendered, "serve": serve, "issuer": issuer, "next": next},
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			example, err := filepath.Abs(exampleOfCompare)
			env.Setenv("EXAMPLE", example)
			return err
		},
	})
}

// rendered checks that stdout has exactly the six lists, in order, and writes their contents to the file names.txt:
// `rendered json|yaml`.
func rendered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: rendered json|yaml")
	}
	raw := []byte(ts.ReadFile("stdout"))
	if args[0] == "yaml" {
		var err error
		if json.Valid(raw) {
			ts.Fatalf("this is JSON")
		}
		raw, err = yaml.YAMLToJSON(raw)
		ts.Check(err)
	}
	var lists map[string][]map[string]any
	ts.Check(json.Unmarshal(raw, &lists))
	if len(lists) != 6 {
		ts.Fatalf("%d lists, want six", len(lists))
	}
	var names strings.Builder
	for _, want := range []string{"clusters", "endpoints", "listeners", "routes", "secrets", "extensions"} {
		resources := lists[want]
		if resources == nil {
			ts.Fatalf("%s is null, want a list", want)
		}
		for _, r := range resources {
			name := r["name"]
			if name == nil {
				name = r["cluster_name"]
			}
			fmt.Fprintf(&names, "%s %v\n", want, name)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("names.txt"), []byte(names.String()), 0o600))
}

// Every command has a description and an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root())
}

// Examples without a server run unchanged in the top folder of a clone.
func TestExamplesRun(t *testing.T) {
	t.Chdir("../..")
	ran := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, isCommand := strings.CutPrefix(strings.TrimSpace(line), "navarchctl ")
			line = strings.ReplaceAll(line, "app in (web, reviews)", "app=web")
			if !isCommand || !strings.Contains(line, "--config-dir") && !strings.HasPrefix(line, "analyze -f deploy/demo") {
				continue
			}
			ran++
			line, _, _ = strings.Cut(line, " >")
			again := root()
			again.SetArgs(strings.Fields(strings.ReplaceAll(line, "'", "")))
			again.SetOut(io.Discard)
			exit := exitError{}
			if err := again.Execute(); err != nil && !(errors.As(err, &exit) && exit.code == exitChanges) {
				t.Errorf("%s: %v", line, err)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root())
	if ran < 3 {
		t.Errorf("%d examples were run", ran)
	}
}

// next checks that the last line of stderr is the next command, and that navarchctl accepts it: `next COMMAND`, the
// first word of the command. `! next`: no line is a next command.
func next(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stderr")), "\n")
	line, is := strings.CutPrefix(lines[len(lines)-1], "next: navarchctl ")
	switch {
	case neg && strings.Contains(ts.ReadFile("stderr"), "next: "):
		ts.Fatalf("there is a next command")
	case neg:
	case !is || len(args) != 1 || !strings.HasPrefix(line, args[0]+" "):
		ts.Fatalf("the last line is %q", lines[len(lines)-1])
	default:
		ts.Check(takes(line))
	}
}

// issuer makes the token issuer's key in a folder, as navarchd does: `issuer DIR`.
func issuer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: issuer DIR")
	}
	_, err := attest.Local(ts.MkAbs(args[0]))
	ts.Check(err)
}
