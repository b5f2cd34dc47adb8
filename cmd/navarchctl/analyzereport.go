package main

import (
	"cmp"
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/analyze"
)

// ofReport converts the problems in a report (the archive of --snapshot) to findings. A report contains records, not
// the objects that analyze reads. Therefore a report cannot be combined with files or a cluster. Errors: such a
// combination, or a report that cannot be read.
func (a *analysis) ofReport(cmd *cobra.Command) (all []analyze.Finding, err error) {
	if len(a.paths) > 0 || a.live || a.only {
		return nil, errors.New("--snapshot excludes --file, --live and --new: a report has no objects over which files could be analysed")
	}
	at := controlPlane{everyRole: true}
	answer, err := at.problems(cmd.Context(), url.Values{})
	if err != nil {
		return nil, err
	}
	for _, p := range answer.Items {
		all = append(all, analyze.Known(analyze.Finding{Code: cmp.Or(string(p.Analyzer), string(p.Code)), Severity: p.Severity,
			Object: p.Object, Field: p.Field, Message: p.Message}))
	}
	return all, nil
}
