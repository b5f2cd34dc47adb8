package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
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
not the part that FIELD names. A warning means that the object applies. A problem that several processes report is listed once.`,
		Example: `  navarchctl problems
  navarchctl problems -n shop --severity error
  navarchctl problems -o json

  # For a script: exit code 1 where something does not apply.
  navarchctl problems --severity error --exit-code >/dev/null`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			answers, err := gather[[]inspect.Problem](cmd.Context(), &at, "/debug/problems", cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			found := joinedProblems(answers, namespace, problem.Severity(severity))
			err = format.write(cmd, problemRows(found))
			if err == nil && exitCode && len(found) > 0 {
				return errMarked
			}
			return err
		},
	}
	at.bind(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Only problems with objects of this namespace (default: all).")
	allNamespaces(cmd)
	cmd.Flags().Var(&choice{&severity, "severity", []string{string(problem.Error), string(problem.Warning)}},
		"severity", "Only problems of this severity: error, warning (default: both).")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "Exit with 1 where a problem is listed.")
	completes(cmd, "severity", string(problem.Error), string(problem.Warning))
	format.bindRows(cmd)
	return cmd
}

// joinedProblems merges the problems of all processes without duplicates. Errors come before warnings, and the problems
// of each severity are sorted by object. A namespace selects the problems of its objects and of the Namespace itself.
// An empty namespace or severity selects all.
func joinedProblems(answers []answer[[]inspect.Problem], namespace string, severity problem.Severity) []inspect.Problem {
	all := []inspect.Problem{}
	for _, a := range answers {
		for _, p := range a.value {
			_, name, _ := strings.Cut(p.Object, " ")
			if (namespace == "" || strings.HasPrefix(name, namespace+"/") || p.Object == "Namespace "+namespace) &&
				(severity == "" || p.Severity == severity) {
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b inspect.Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(all, func(a, b inspect.Problem) bool {
		return a.Severity == b.Severity && a.Object == b.Object && a.Field == b.Field && a.Message == b.Message
	})
}

// problemRows returns the problems as the command's result, for every output format.
func problemRows(all []inspect.Problem) rows {
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

func problemsTable(w io.Writer, all []inspect.Problem, wide bool) error {
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
