package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of commands. 0 is success, and 1 an error.
const (
	exitFound   = 2 // analyze: a finding reaches the threshold
	exitDenied  = 2 // authz check: a request is denied; test: a case failed
	exitWarned  = 2 // check: a warning, with --strict
	exitChanges = 2 // plan: something changes
	exitRisk    = 3 // plan: a risk at or above --fail-on
	exitStale   = 5 // apply --plan: something has changed since the plan
	exitPartial = 4 // plan, problems: only a part of the fleet answered; compare, suggest sidecar: a proxy could not be read

	exitDiffers = 2 // compare: something is different
)

// exit is one exit code with its meaning.
type exit struct {
	code    int
	meaning string
}

// exits maps the words of a command to its exit codes. It contains only commands that have further codes, or that give
// 0 or 1 a special meaning. The help texts and the documentation of the commands are made from this map.
var exits = map[string][]exit{
	"analyze": {{0, "no finding reaches --fail-threshold"}, {1, "the analysis failed"}, {exitFound, "at least one finding reaches it"}},
	"apply": {{0, "the objects are applied; with --wait: every affected proxy has acknowledged them"}, {1, "error"},
		{exitStale, "with --plan: an object has changed since the plan, and nothing is applied"}},
	"authz check": {{0, "the request is allowed at every port that was asked for"}, {1, "error"},
		{exitDenied, "the request is denied at a port"}},
	"check": {{0, "no check failed"}, {1, "a check failed, or an error"},
		{exitWarned, "with --strict: a check has a warning, and none failed"}},
	"compare": {{0, "everything is equal, or argued for"}, {1, "error"}, {exitDiffers, "something is different"},
		{exitPartial, "a proxy or a dump could not be read"}},
	"describe": {{0, "something is known of the name"}, {1, "nothing is known of it, or an error"}},
	"leader":   {{0, "a process leads"}, {1, "no process leads, or an error"}},
	"migrate values": {{0, "every setting is acted on, or has no effect"},
		{1, "settings are to be decided, or not acted on, or an error; the output is complete all the same"}},
	"plan": {{0, "nothing changes"}, {1, "error, or a refused object"}, {exitChanges, "something changes"},
		{exitRisk, "a risk at or above --fail-on"}, {exitPartial, "only some replicas answered"}},
	"problems": {{0, "no error occurred"}, {1, "error, or with --exit-code: a problem is listed"},
		{exitPartial, "with --exit-code: no problem is listed, and a process did not answer"}},
	"proxy-config": {{0, "no error occurred"}, {1, "error, or with --exit-code: a resource was refused or is withheld"}},
	"proxy-status": {{0, "no error occurred"},
		{1, "error, or with --exit-code: something was refused or is withheld, or a replica did not answer"}},
	"render":          {{0, "the resources are printed"}, {1, "error, or with --strict: the configuration has problems"}},
	"suggest sidecar": {{0, "the suggestions are printed"}, {1, "error"}, {exitPartial, "a proxy could not be read"}},
	"test":            {{0, "all cases pass"}, {1, "error"}, {exitDenied, "a case failed"}},
	"wait": {{0, "every affected proxy has acknowledged"},
		{1, "the timeout has passed, a proxy refuses the change, the object has errors, or an error"}},
}

// exitError ends a command with an exit code other than 0 and 1, which tells a script what the command found.
type exitError struct {
	code int
	text string
}

// Error returns the text.
func (e exitError) Error() string { return e.text }

// ExitCode returns the exit code. wire.Main ends the process with this code.
func (e exitError) ExitCode() int { return e.code }

// describeExits adds the exit codes to the help texts of a command and of all commands below it.
func describeExits(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		describeExits(sub)
	}
	var lines []string
	for _, e := range exitsOf(cmd) {
		lines = append(lines, fmt.Sprintf("  %d  %s", e.code, e.meaning))
	}
	if lines != nil {
		cmd.Long = strings.TrimRight(cmd.Long, "\n") + "\n\nExit codes:\n" + strings.Join(lines, "\n")
	}
}

// exitsOf returns the exit codes of a command. If exits has no entry for the command, exitsOf returns the entry of the
// parent command, or nil if that has no entry either.
func exitsOf(cmd *cobra.Command) []exit {
	if own := exits[commandName(cmd)]; own != nil || !cmd.HasParent() {
		return own
	}
	return exits[commandName(cmd.Parent())]
}

// commandName returns the words of a command after "navarchctl", without the word experimental.
func commandName(cmd *cobra.Command) string {
	words := strings.Fields(cmd.CommandPath())[1:]
	if len(words) > 1 && words[0] == experimental {
		words = words[1:]
	}
	return strings.Join(words, " ")
}
