package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"navarch.io/navarch/deploy/docs"
)

// every calls do for each command below navarchctl.
func every(do func(cmd *cobra.Command)) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		do(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root())
}

// withoutFormats are the commands that print neither objects nor rows, with what they print.
var withoutFormats = map[string]string{
	"": "help", "authz": "help", "ca": "help", "removals": "help", "store": "help", "tag": "help", "token": "help", "vm": "help",
	"migrate": "help", "experimental": "help", "admin": "help", "suggest": "help",
	"ca roots": "PEM", "ca rotate": "acts", "ca abort": "acts", "ca revoke": "acts", "ca restore": "acts",
	"store held": "gone", "store accept-removal": "gone", "store adopt": "acts", "store promote": "acts", "store roles": "a shell script",
	"tag set": "acts", "tag generate": "a manifest", "tag remove": "acts", "removals accept": "acts", "uninstall": "acts",
	"inject": "a manifest", "injection-webhook": "a manifest", "create-remote-secret": "a manifest", "vm configure": "files",
	"token create": "a token", "snapshot": "help", "snapshot save": "a file", "bug-report": "a file",
}

// Commands that print objects or rows have the formats of kubectl; a list has wide and name too.
// Promise: commands.md#formats
func TestEveryCommandHasTheFormats(t *testing.T) {
	seen := map[string]bool{}
	every(func(cmd *cobra.Command) {
		name := commandName(cmd)
		seen[name] = true
		flag, without := cmd.Flag("output"), withoutFormats[name]
		switch {
		case flag == nil && without != "" || flag != nil && flag.Value.Type() == "string": // -o FILE
		case flag == nil:
			t.Errorf("%s has no -o", name)
		case without != "":
			t.Errorf("%s has -o, though it prints %s", name, without)
		default:
			formats := strings.Split(strings.TrimSuffix(strings.TrimPrefix(flag.Usage, "Format: "), "."), ", ")
			has := func(format string) bool { return slices.Contains(formats, format) }
			lists := has(short) && name != "version" && name != "why"
			if !has("json") || !has("yaml") || lists && (!has(wideFormat) || !has(nameFormat)) {
				t.Errorf("%s has the formats %v", name, formats)
			}
		}
	})
	for name := range withoutFormats {
		if !seen[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}

// withFiles are the commands whose arguments are files, or names that nobody lists.
var withFiles = []string{"analyze", "compare", "suggest sidecar", "migrate values", "test", "why", "who-can", "authz who-can", "store promote", "tag generate"}

// A shell completes names: of flags that have one meaning everywhere, and of arguments.
// Promise: commands.md#completion
func TestEveryNameIsCompleted(t *testing.T) {
	named := []string{"namespace", "istio-namespace", "context", "output", "proxy", "from", "to", "revision", "control-plane-revision"}
	every(func(cmd *cobra.Command) {
		name := commandName(cmd)
		for _, flag := range named {
			f := cmd.Flag(flag)
			if f == nil || f.Value.Type() != "string" && f.Value.Type() != "format" ||
				strings.HasPrefix(name, "store") || slices.Contains(filesOf[name], flag) {
				continue
			}
			if _, is := cmd.GetFlagCompletionFunc(flag); !is && !inherited(cmd, flag) {
				t.Errorf("%s --%s is not completed", name, flag)
			}
		}
		runs := cmd.Runnable() && !cmd.HasSubCommands() && !cmd.DisableFlagParsing
		if runs && cmd.ValidArgsFunction == nil && !slices.Contains(withFiles, name) {
			t.Errorf("arguments of %s are not completed", name)
		}
	})
}

// filesOf are flags whose values are files or new names.
var filesOf = map[string][]string{"render": {"proxy"}, "vm configure": {"output", "namespace", "revision"}, "token create": {"namespace"},
	"injection-webhook": {"revision"}, "create-remote-secret": {"namespace"}, "inject": {"revision", "output"}}

// inherited reports whether a command above completes a flag.
func inherited(cmd *cobra.Command, flag string) bool {
	for up := cmd.Parent(); up != nil; up = up.Parent() {
		if _, is := up.GetFlagCompletionFunc(flag); is {
			return true
		}
	}
	return false
}

// Every example of every command is accepted.
// Promise: commands.md#examples
func TestEveryExampleIsAccepted(t *testing.T) {
	shown := 0
	every(func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			comment := strings.HasPrefix(line, "#")
			_, line, is := strings.Cut(line, "navarchctl ")
			if comment || !is || cmd.DisableFlagParsing {
				continue
			}
			shown++
			for _, end := range []string{" || ", "   #", " >"} {
				line, _, _ = strings.Cut(line, end)
			}
			if err := takes(line); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
			}
		}
	})
	if shown < 100 {
		t.Errorf("%d examples", shown)
	}
}

// The page of commands has the exit codes of the code, and every code that a command ends with is in the table.
// Promise: commands.md#exit-codes
func TestExitCodesOfThePage(t *testing.T) {
	text, err := docs.Pages.ReadFile("commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for command, codes := range exits {
		for _, e := range codes {
			want = append(want, fmt.Sprintf("| `%s` | %d | %s |", command, e.code, e.meaning))
		}
		cmd, _, err := root().Find(strings.Fields(command))
		if err != nil || commandName(cmd) != command || !strings.Contains(cmd.Long, "\n\nExit codes:\n  0  ") {
			t.Errorf("%s: no such command, or no exit codes in its help: %v", command, err)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	table, err := os.ReadFile("exits.go")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("*.go")
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`exitError\{(\w+), `).FindAllStringSubmatch(string(code), -1) {
			if !strings.Contains(string(table), "{"+m[1]+", ") {
				t.Errorf("%s: %s is in no command's exit codes", file, m[1])
			}
		}
	}
}

// Values of -o and words that stand for them are accepted in any case.
func TestAliasesIgnoreCase(t *testing.T) {
	for word, want := range map[string]string{"JSON": "json", "table": short, "TABLE": short, "Text": short} {
		got := ""
		if err := (&choice{&got, "format", []string{short, "json"}}).Set(word); err != nil || got != want {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
}
