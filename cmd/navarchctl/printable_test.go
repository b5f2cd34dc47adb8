package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"navarch.io/navarch/cmd/internal/report"
)

// evil is a text in JSON with commands for terminals, marks that reverse the direction, and a line of its own.
const evil = `\u001b]0;x\u0007\u001b[31m\u202e\u009b31m\r\nFORGED: allowed\u2028FORGED`

// forged returns the lines of an output that begin as the line in evil does.
func forged(text string) (all []string) {
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u2028", r) }) {
		if strings.HasPrefix(strings.TrimLeft(line, " \t-\"'"), "FORGED") {
			all = append(all, line)
		}
	}
	return all
}

// hostileReport writes an archive whose names and texts all have control characters, and returns its path.
func hostileReport(t *testing.T) string {
	t.Helper()
	w := report.NewWriter(time.Unix(1, 0))
	for _, entry := range [][2]string{
		{"index.json", `{"schema":"` + report.Schema + `","version":"EVIL","asked":"EVIL","missing":[{"name":"EVIL","reason":"EVIL"}]}`},
		{"processes/a/process.json", `{"name":"aEVIL","version":"EVIL","golang_version":"EVIL","platform":"EVIL","zone":"EVIL","cluster":"EVIL",
			"missing":[{"name":"EVIL","reason":"EVIL"}]}`},
		{"processes/b/process.json", `{"name":"bEVIL","version":"EVIL"}`},
		{"processes/a/proxies.jsonl", strings.ReplaceAll(`{"node":{
			"ID":"sidecar~1.1.1.1~web-0.shop~shop.svc.cluster.localEVIL","Name":"web-0","Namespace":"shop",
			"Labels":{"app":"EVIL"},
			"Workload":"webEVIL","Version":"EVIL","Cluster":"EVIL"},"address":"EVIL","set":-1,
			"types":{"clusters":{"sent":"EVIL","acked":"EVIL",
			"refused":[{"name":"EVIL","version":"EVIL","error":"EVIL","objects":["EVIL"]}]}}}`, "\n", "") + "\n"},
		{"processes/a/problems.json", `[{"object":"VirtualService shop/EVIL",
			"location":"EVIL","field":"EVIL","code":"EVIL","severity":"warning","message":"EVIL"}]`},
		{"processes/a/patches.json", `[{"object":"EnvoyFilter shop/EVIL","applyTo":"EVIL","operation":"EVIL","changed":1}]`},
		{"processes/a/leader.json", `{"name":"EVIL","revision":"EVIL","epoch":4,"self":true}`},
		{"processes/a/removals.json", `{"leader":"EVIL","held":[{"id":"EVIL","namespace":"EVIL","count":1,"kinds":{"EVIL":1},"names":["EVIL"]}]}`},
	} {
		content := strings.ReplaceAll(entry[1], "EVIL", evil)
		if err := w.Add(entry[0], []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := w.Member(true)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "evil.tgz")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Neither an archive nor the name of a file sends commands to the terminal, by output or by errors.
// Promise: bug-report.md#bounds-of-a-report-of-others
func TestOutputIsPrintable(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "navarchctl") // TestMain runs the command of this name
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	bad := filepath.Join(folder, "bad\x1b[32m\nNAME.yaml")
	if err := os.WriteFile(bad, []byte("kind: VirtualService\nmetadata: {name: a\x85}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	archive, proxy := "--snapshot "+hostileReport(t)+" ", "web-0.shop"
	escaped := 0
	for _, line := range []string{archive + "version", archive + "version --short", archive + "ps", archive + "ps -o wide",
		archive + "problems",
		archive + "patches", archive + "leader", archive + "removals list", archive + "analyze", archive + "proxy-config all " + proxy,
		archive + "explain --proxy " + proxy + " x", archive + "describe pod " + proxy, archive + "describe host a.example",
		archive + "why --from " + proxy + " http://a.example/", archive + "who-can call a.shop", archive + "authz check " + proxy,
		archive + "plan -f " + folder, "plan -f " + folder + " --config-dir " + folder, "render --config-dir " + folder + " --proxy x",
		"render --config-dir " + folder + " --node " + folder, "analyze -f " + folder} {
		var out, problems bytes.Buffer
		cmd := exec.Command(program, strings.Fields(line)...)
		cmd.Stdout, cmd.Stderr = &out, &problems
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		control := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
		for stream, text := range map[string]string{"stdout": out.String(), "stderr": problems.String()} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
				t.Errorf("%s: %s %q", line, stream, text)
			}
			if lines := forged(text); len(lines) > 0 {
				t.Errorf("%s: %s has the lines %q", line, stream, lines)
			}
			if strings.Contains(text, `\x1b`) {
				escaped++
			}
		}
	}
	if escaped < 10 {
		t.Errorf("only %d outputs had anything to escape", escaped)
	}
}
