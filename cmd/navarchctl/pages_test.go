package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/docs"
)

// Patterns for a page: its code blocks, the command lines of navarchctl in them, commands of navarchctl in the text,
// and the words of a line.
var (
	blocks = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	lines  = regexp.MustCompile(`(?m)^(?:.* -- |bin/)?navarchctl (.*)$`)
	named  = regexp.MustCompile("`navarchctl ([a-z][^`]*)`")
	words  = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// Every navarchctl command line in a code block of a page for operators is valid, with its flags and arguments.
// Commands in the text exist, with their flags.
func TestCommandsOfPages(t *testing.T) {
	names, err := fs.Glob(docs.Pages, "*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := docs.Pages.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
			for _, line := range lines.FindAllStringSubmatch(strings.ReplaceAll(block[1], "\\\n", " "), -1) {
				shown++
				if err := takes(line[1]); err != nil {
					t.Errorf("%s: navarchctl %s: %v", name, line[1], err)
				}
			}
		}
		for _, m := range named.FindAllStringSubmatch(blocks.ReplaceAllString(string(text), ""), -1) {
			if err := knows(m[1]); err != nil {
				t.Errorf("%s: `navarchctl %s`: %v", name, m[1], err)
			}
		}
		if name == "first-day.md" && shown < 13 {
			t.Errorf("%s: %d commands were checked", name, shown)
		}
	}
}

// takes returns why navarchctl refuses a line; a line with an ellipsis is incomplete and skipped.
func takes(line string) error {
	for _, end := range []string{" # ", " > ", " | ", "; "} {
		line, _, _ = strings.Cut(line, end)
	}
	if strings.Contains(line, "...") {
		return knows(line)
	}
	var args []string
	for _, word := range words.FindAllString(line, -1) {
		args = append(args, strings.Trim(word, `'"`))
	}
	cmd, rest, err := root().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if !cmd.Runnable() {
		return fmt.Errorf("%s is no command by itself", cmd.CommandPath())
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return cmd.ValidateRequiredFlags()
}

// knows returns an error for a line without a known command, or with a flag that the command does not have.
func knows(line string) error {
	args := words.FindAllString(line, -1)
	cmd, _, _ := root().Find(args) // its error may be of arguments
	if cmd.Parent() == nil {
		return fmt.Errorf("there is no command %s", args[0])
	}
	for _, word := range args {
		flag, is := strings.CutPrefix(strings.Trim(word, "[]"), "--")
		if flag, _, _ = strings.Cut(flag, "="); is && flag != "" && cmd.Flag(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil {
			return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), flag)
		}
	}
	return nil
}
