package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/problem"
)

func problemsCommand() *cobra.Command {
	var (
		at        = controlPlane{everyRole: true}
		format    output
		namespace string
		severity  string
		exitCode  bool
	)
	cmd := &cobra.Command{
		Use:   "problems",
		Short: "List the problems of the configuration and of the control plane",
		Long: `Prints one line for each problem that a process of the control plane knows, errors first: problems of objects and files, of
several objects together, of clusters, and of the control plane itself. An error of an object means that the object does not apply, or
not the part that FIELD names. A warning means that the object applies. A problem that several processes report is listed once. If a
process is in no answer, a warning names it.`,
		Example: `  navarchctl problems
  navarchctl problems -n shop --severity error
  navarchctl problems -o json

  # For a script: exit code 1 where something does not apply.
  navarchctl problems --severity error --exit-code >/dev/null`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			answer, err := at.problems(cmd.Context(), url.Values{"namespace": {namespace}, "severity": {severity}})
			if err != nil {
				return err
			}
			if err = format.write(cmd, problemRows(append([]fleetapi.Problem{}, answer.Items...))); err == nil {
				err = at.warnOfMissing(cmd.ErrOrStderr(), "problems", answer.Partial)
			}
			switch {
			case err != nil || !exitCode:
				return err
			case len(answer.Items) > 0:
				return errMarked
			case len(answer.Partial)+at.silent > 0:
				return exitError{exitPartial, "no problem is listed, and only a part of the control plane answered (exit code 4)"}
			}
			return nil
		},
	}
	at.bind(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Only problems with objects of this namespace (default: all).")
	allNamespaces(cmd)
	cmd.Flags().Var(&choice{&severity, "severity", []string{string(problem.Error), string(problem.Warning)}},
		"severity", "Only problems of this severity: error, warning (default: both).")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false,
		"Exit with 1 where a problem is listed, with 4 where none is and a process did not answer.")
	completes(cmd, "severity", string(problem.Error), string(problem.Warning))
	format.bindRows(cmd)
	return cmd
}

// problems reads the problems of all processes, each once, errors first. The argument q has parameters of
// fleetapi.ProblemParameters without those of the window. Results and errors are those of askFleets.
func (c *controlPlane) problems(ctx context.Context, q url.Values) (fleetapi.Answer[fleetapi.Problem], error) {
	type parts = []fleetapi.From[[]fleetapi.Problem]
	return askFleets(ctx, c, "problems", q, func(of parts) fleetapi.Answer[fleetapi.Problem] {
		s, _ := fleetapi.ParseProblemSelection(q) // processes have accepted q
		s.Window = fleetapi.Everything
		return s.MergeProblems(of)
	})
}

// problemRows returns the problems as the command's result, for every output format.
func problemRows(all []fleetapi.Problem) rows {
	r := rows{value: all, table: func(w io.Writer, wide bool) error { return problemsTable(w, all, wide) },
		next: nextIs("which proxies are in sync", "proxy-status")}
	for _, p := range all {
		r.names = append(r.names, objectName(p.Object))
		switch kind, name, _ := strings.Cut(p.Object, " "); {
		case len(r.names) != 1:
		case name == "" && kind != "" && p.Code == problem.Held: // the removal of several objects of a kind is held back
			r.next = nextIs("the held removals, and how to accept one", "removals", "list")
		case name != "" && (kindName{kind: kind}).named():
			r.next = nextIs("after you mend the object: wait until all proxies have it", "wait", objectName(p.Object))
		}
	}
	return r
}

func problemsTable(w io.Writer, all []fleetapi.Problem, wide bool) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "No problems.")
		return err
	}
	rows := [][]string{{"SEVERITY", "OBJECT", "FIELD", "CODE", "MESSAGE"}}
	if wide {
		rows[0] = append(rows[0], "LOCATION", "RELATED")
	}
	for _, p := range all {
		row := []string{string(p.Severity), show.Printable(p.Object),
			cmp.Or(show.Printable(p.Field), "-"), cmp.Or(string(p.Analyzer), string(p.Code)), show.Printable(p.Message)}
		if wide {
			row = append(row, cmp.Or(p.Location, "-"), cmp.Or(strings.Join(p.Related, ", "), "-"))
		}
		rows = append(rows, row)
	}
	return show.Table(w, rows)
}
