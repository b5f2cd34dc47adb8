package show

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/view"
)

// ChangeOf converts a report for printing. r must not be nil and stays unchanged. The result shares slices with r. If
// raw is set, Raw of the result has a line for each resource that the report lists as different; otherwise Raw is nil.
// If named is set, Names has the proxies that the report names.
func ChangeOf(r *preview.Report, raw, named bool) Change {
	proxies, views, bytes := r.Count()
	c := Change{Revision: r.Revision, AllViews: r.Views, AllProxies: r.Proxies, Bytes: bytes, Missing: r.Partial, Seconds: r.Seconds,
		NewProblems: problemLines(r.Problems.New), GoneProblems: problemLines(r.Problems.Gone)}
	for _, o := range r.Objects {
		switch o.Act {
		case preview.Created:
			c.Created++
		case preview.Changed:
			c.Changed++
		case preview.Deleted:
			c.Deleted++
		case preview.Refused:
			for _, p := range o.Problems {
				c.Refused = append(c.Refused, Refusal{o.Object, p.Field, p.Message})
			}
		case preview.Unchanged:
		}
	}
	for _, g := range r.Affected {
		i := slices.IndexFunc(c.Affected, func(a Affected) bool { return a.Namespace == g.Namespace && a.Kind == g.Kind })
		if i < 0 {
			i = len(c.Affected)
			c.Affected = append(c.Affected, Affected{Namespace: g.Namespace, Kind: g.Kind})
		}
		c.Affected[i].Proxies += g.Proxies
	}
	if named {
		c.Names = namesOf(r.Affected)
	}
	if raw {
		c.Raw = rawLines(r.Affected)
	}
	c.Summary = summaryOf(r)
	c.Summary.Views, c.Summary.Proxies = views, proxies
	return c
}

// namesOf returns the proxies that groups name, sorted.
func namesOf(groups []preview.Group) (all []string) {
	for _, g := range groups {
		for _, id := range g.Names {
			all = append(all, view.NameOf(id))
		}
	}
	slices.Sort(all)
	return all
}

// summaryOf returns the facts and risks of a report.
func summaryOf(r *preview.Report) meaning.Summary {
	s := meaning.Summary{MoreFacts: r.MoreFacts, MoreRisks: r.MoreRisks}
	count := func(c preview.Count) meaning.Count {
		return meaning.Count{Views: c.Views, Proxies: c.Proxies, Example: c.Example}
	}
	for _, one := range r.Risks {
		level := max(meaning.Medium, meaning.ParseLevel(one.Level))
		s.Risks = append(s.Risks, meaning.RiskLine{Count: count(one.Count), Subjects: meaning.Subjects{Named: one.Subjects, Others: one.Others},
			Risk: meaning.Risk{Code: one.Code, Level: level, Text: one.Text, Objects: one.Objects}})
	}
	for _, one := range r.Facts {
		line := meaning.FactLine{Fact: meaning.Fact{Aspect: one.Aspect, Text: one.Text}, Count: count(one.Count),
			Subjects: meaning.Subjects{Named: one.Subjects, Others: one.Others}}
		line.Area, _ = meaning.ParseArea(one.Area)
		s.Facts = append(s.Facts, line)
	}
	return s
}

// rawLines returns one line for each listed resource that differs, without duplicates.
func rawLines(groups []preview.Group) (all []string) {
	seen := map[string]bool{}
	for _, g := range groups {
		for _, a := range g.Resources {
			if line := a.Type + " " + a.Change + " " + a.Name; !seen[line] {
				seen[line], all = true, append(all, line)
			}
		}
	}
	return all
}

// problemLines returns a line for each problem.
func problemLines(found []preview.Found) (all []string) {
	for _, p := range found {
		all = append(all, string(p.Severity)+": "+strings.TrimSpace(p.Object+" "+p.Field)+": "+p.Message)
	}
	return all
}
