package main

import (
	"os"
	"strings"

	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/problem"
)

// planFindings converts a report to findings of package analyze. The findings are the problems of the planned objects,
// the risks, and the new problems. Findings about objects to apply have the file and line of the object.
func planFindings(r *preview.Report, c change) (all []analyze.Finding) {
	locations := map[string]string{}
	for _, o := range c.put {
		locations[o.ID.String()] = o.Location
	}
	add := func(code string, severity problem.Severity, object, field, message string) {
		all = append(all, analyze.Finding{Code: code, Severity: severity, Object: object, Field: field, Message: message,
			Location: locations[object]})
	}
	for _, o := range r.Objects {
		for _, p := range o.Problems {
			add(string(p.Code), p.Severity, o.Object, p.Field, p.Message)
		}
	}
	for _, risk := range r.Risks {
		severity, object := problem.Warning, ""
		if risk.Level == meaning.High.String() {
			severity = problem.Error
		}
		if len(risk.Objects) > 0 {
			object = risk.Objects[0]
		}
		add(string(risk.Code), severity, object, "", strings.TrimPrefix(strings.Join(risk.Subjects, ", ")+": "+risk.Text, ": "))
	}
	for _, p := range r.Problems.New {
		add(string(p.Code), p.Severity, p.Object, p.Field, p.Message)
	}
	analyze.NewLines(os.ReadFile).Fill(all)
	return all
}

// riskTitle returns the title of a risk's code. It returns "" for the codes of problems.
func riskTitle(code string) string { return meaning.Titles[meaning.Code(code)] }
