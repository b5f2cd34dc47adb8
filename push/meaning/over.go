package meaning

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
)

const (
	maxLines    = 1000 // maximum number of facts that Over keeps; the same limit holds for risks
	maxSubjects = 5    // maximum number of subjects that a FactLine or RiskLine names
)

// Count counts the views (groups of proxies with equal configuration) and the proxies that a fact or a risk is about.
type Count struct {
	Views, Proxies int
	// Example is the label of the first of these views. It is empty for the risks that Reach describes.
	Example string
	last    int    // number of the last view that was counted
	sum     uint64 // hash of the numbers of all counted views
}

// add counts the view v, which has the given number. It does nothing if the previous call had the same number.
func (c *Count) add(number int, v View) {
	if c.last == number {
		return
	}
	if c.last = number; c.Views == 0 {
		c.Example = v.Label
	}
	c.Views++
	c.Proxies += v.Proxies
	c.sum = (c.sum ^ uint64(number)) * 1099511628211 // FNV-1a
}

// Subjects lists the subjects of the facts or risks that were joined in one line.
type Subjects struct {
	Named  []string // the first subjects, at most 5 (maxSubjects)
	Others int      // number of further subjects
}

// add adds a subject.
func (s *Subjects) add(subject string) {
	if len(s.Named) < maxSubjects {
		s.Named = append(s.Named, subject)
	} else {
		s.Others++
	}
}

// FactLine is one fact, or several facts that differ only in their subjects and hold for the same views. Fact.Subject
// is the first of the subjects.
type FactLine struct {
	Fact
	Subjects
	Count
}

// RiskLine is one risk, or several risks that differ only in their subjects and hold for the same views. Risk.Subject
// is the first of the subjects. If several views have the risk, Objects lists the causes in all these views, at most 5.
type RiskLine struct {
	Risk
	Subjects
	Count
}

// Summary contains the facts and risks of several views.
type Summary struct {
	Facts []FactLine // sorted by area and subject
	Risks []RiskLine // sorted by severity, the most severe first, then by code and subject
	// MoreFacts and MoreRisks count the facts and risks that are not listed, because 1,000 others (maxLines) came
	// first. A fact or risk of several views counts once for each view.
	MoreFacts, MoreRisks int
	Views, Proxies       int // numbers of all compared views, and of their proxies
}

// Highest returns the level of the most severe risk in Risks, or 0 if Risks is empty. Risks that MoreRisks counts are
// not considered.
func (s Summary) Highest() Level {
	if len(s.Risks) == 0 {
		return 0
	}
	return s.Risks[0].Level
}

// Unchanged returns the areas without a fact in Facts, in the order of the areas. It is nil if all areas have facts.
// Facts that MoreFacts counts are not considered. The caller owns the result.
func (s Summary) Unchanged() (all []Area) {
	for area := range NumAreas {
		if !slices.ContainsFunc(s.Facts, func(f FactLine) bool { return f.Area == area }) {
			all = append(all, area)
		}
	}
	return all
}

// summing builds a Summary from one view after the other.
type summing struct {
	Summary
	facts map[Fact]*FactLine
	risks map[riskKey]*RiskLine
	memo  *memo
}

// Over returns the facts and risks of several views, without repetitions, and the risks of r. It caches the facts of up
// to 20,000 pairs (maxKnown), because several views may have the same pair. Over reads one view after the other, so the
// iterator may make each view on demand. After ctx has ended, Over no longer compares authorization rules, and the
// result may contain access risks that do not exist. The Objects of a risk may share memory with r.
func Over(ctx context.Context, views iter.Seq[View], r Reach) Summary {
	s := &summing{facts: map[Fact]*FactLine{}, risks: map[riskKey]*RiskLine{}, memo: newMemo(ctx)}
	for v := range views {
		s.add(v)
	}
	for _, risk := range r.Risks() {
		s.addRisk(risk, View{}).Count = Count{Views: s.Views, Proxies: r.Proxies}
	}
	return s.result()
}

// add adds a view.
func (s *summing) add(v View) {
	s.Views++
	s.Proxies += v.Proxies
	for _, f := range facts(v, s.memo) {
		line := s.facts[f]
		switch {
		case line == nil && len(s.facts) >= maxLines:
			s.MoreFacts++
			continue
		case line == nil:
			line = &FactLine{Fact: f}
			s.facts[f] = line
			s.Facts = append(s.Facts, FactLine{Fact: f})
		}
		line.Count.add(s.Views, v)
	}
	for _, risk := range risks(v, s.memo) {
		s.addRisk(risk, v)
	}
}

// addRisk counts a risk of the view v, and returns the line of the risk. If s already has maxLines risks, a new risk is
// counted only in MoreRisks, and its line is not kept.
func (s *summing) addRisk(risk Risk, v View) *RiskLine {
	line := s.risks[risk.key()]
	switch {
	case line == nil && len(s.risks) >= maxLines:
		s.MoreRisks++
		return &RiskLine{}
	case line == nil:
		line = &RiskLine{Risk: risk}
		s.risks[risk.key()] = line
	default:
		line.Objects = slices.Compact(slices.Sorted(slices.Values(slices.Concat(line.Objects, risk.Objects))))
		line.Objects = line.Objects[:min(len(line.Objects), maxSubjects)]
	}
	line.Count.add(s.Views, v)
	return line
}

// Add inserts the risk r into Risks, which stays sorted. The parameter c counts the views and proxies that have the
// risk. A Subject or Text of more than 400 runes is shortened. The Summary shares r.Objects with the caller. Add does
// not join equal risks, and does not change MoreRisks, Views and Proxies.
func (s *Summary) Add(r Risk, c Count) {
	r.Subject, r.Text = clip(r.Subject), clip(r.Text)
	line := RiskLine{Risk: r, Count: c}
	line.Subjects.add(r.Subject)
	at, _ := slices.BinarySearchFunc(s.Risks, line, func(a, b RiskLine) int { return compareRisks(a.Risk, b.Risk) })
	s.Risks = slices.Insert(s.Risks, at, line)
}

// result joins the lines that differ only in their subjects and have the same views, and sorts the lines.
func (s *summing) result() Summary {
	out, at := s.Summary, map[string]int{}
	out.Facts = nil
	for _, f := range s.Facts {
		line := s.facts[f.Fact]
		key := fmt.Sprintf("%d %q %q %d", f.Area, f.Aspect, f.Text, line.sum)
		i, is := at[key]
		if !is {
			i, at[key], out.Facts = len(out.Facts), len(out.Facts), append(out.Facts, *line)
		}
		out.Facts[i].Subjects.add(f.Subject)
	}
	slices.SortStableFunc(out.Facts, func(a, b FactLine) int {
		return cmp.Or(cmp.Compare(a.Area, b.Area), cmp.Compare(a.Subject, b.Subject))
	})
	risks := slices.SortedFunc(maps.Values(s.risks), func(a, b *RiskLine) int { return compareRisks(a.Risk, b.Risk) })
	for _, line := range risks {
		key := fmt.Sprintf("%s %d %q %q %d", line.Code, line.Level, line.Text, line.Objects, line.sum)
		i, is := at[key]
		if !is {
			i, at[key], out.Risks = len(out.Risks), len(out.Risks), append(out.Risks, *line)
		}
		out.Risks[i].Subjects.add(line.Subject)
	}
	return out
}

// Reach describes a change as a whole. A number that is zero is unknown, and causes no risk.
type Reach struct {
	// MeshWide lists the objects of the change that apply to the whole mesh, as "Kind namespace/name".
	MeshWide []string
	// Edited lists the objects of the change, as "Kind namespace/name". If it is nil, they are unknown. If it has at
	// most 5 objects, risks name them as the cause.
	Edited []string
	// Proxies counts the proxies whose configuration changes, and All counts all proxies. All is at least Proxies. It
	// is a medium risk if more than 10 % of the proxies change, and a high risk if more than 50 % change.
	Proxies, All int
	// Views are the numbers of views before and after the change. It is a risk if the number more than doubles.
	Views [2]int
	// Bytes are the sizes of one proxy's configuration before and after the change, in bytes. The proxy belongs to the
	// view whose configuration grows most. Growth by more than 20 % is a risk.
	Bytes [2]int64
	// Found lists further risks, which the caller has found.
	Found []Risk
}

// The limits in percent beyond which Reach has a risk.
const (
	manyProxies = 10
	mostProxies = 50
	muchGrowth  = 20
)

// Risks returns the risks that follow from the numbers and from MeshWide, then the risks in Found. A Subject or Text of
// more than 400 runes is shortened. The result is not sorted. Without risks it is nil. The Objects of the risks may
// share memory with r.
func (r Reach) Risks() (all []Risk) {
	var cause []string
	if len(r.Edited) <= maxSubjects {
		cause = r.Edited
	}
	for _, object := range r.MeshWide {
		all = append(all, Risk{Code: MeshWide, Level: Medium, Subject: clip(object), Objects: []string{object},
			Text: "the object applies to the whole mesh"})
	}
	if r.All > 0 && r.Proxies*100 > r.All*manyProxies {
		level := Medium
		if r.Proxies*100 > r.All*mostProxies {
			level = High
		}
		all = append(all, Risk{Code: ManyProxies, Level: level, Subject: "reach", Objects: cause,
			Text: fmt.Sprintf("%d of %d proxies get a different configuration (%s)", r.Proxies, r.All,
				percent(uint64(r.Proxies), uint64(r.All)))})
	}
	if r.Views[0] > 0 && r.Views[1] > 2*r.Views[0] {
		all = append(all, Risk{Code: ViewsMultiply, Level: Medium, Subject: "reach", Objects: cause,
			Text: fmt.Sprintf("views %d -> %d", r.Views[0], r.Views[1])})
	}
	if r.Bytes[0] > 0 && (r.Bytes[1]-r.Bytes[0])*100 > r.Bytes[0]*muchGrowth {
		all = append(all, Risk{Code: BytesGrow, Level: Medium, Subject: "reach", Objects: cause,
			Text: fmt.Sprintf("bytes per proxy %d -> %d", r.Bytes[0], r.Bytes[1])})
	}
	for _, risk := range r.Found {
		risk.Subject, risk.Text = clip(risk.Subject), clip(risk.Text)
		all = append(all, risk)
	}
	return all
}
