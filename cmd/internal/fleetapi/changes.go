package fleetapi

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/push/ledger"
)

// Change is one item of /api/v1/changes. It covers the edits with the store's revisions First to Last (inclusive), and
// counts the proxies that have received them. To plan an edit is to compute the new configuration of proxies. Each
// replica plans edits for its own proxies. A plan belongs to one lane: config or endpoints. Plans of one lane form one
// item if their revisions overlap.
type Change struct {
	Lane     string    `json:"lane"`  // config, endpoints
	First    int64     `json:"first"` // revision of the store
	Last     int64     `json:"last"`
	Since    time.Time `json:"since"`             // time of the commit of the first edit
	Objects  []string  `json:"objects,omitempty"` // sorted, each as "KIND NAMESPACE/NAME" or "KIND NAME"
	More     int       `json:"more,omitempty"`    // largest number of objects that one of the plans does not list
	Replicas int       `json:"replicas"`          // number of replicas whose plans are in the item
	Views    int       `json:"views"`             // affected views (groups of proxies with equal configuration), summed over replicas
	// Affected counts the proxies whose configuration changed, including Refused and Gone. A proxy counts once for each
	// plan that affects it.
	Affected     int `json:"affected"`
	Acknowledged int `json:"acknowledged"`
	Refused      int `json:"refused,omitempty"` // proxies that refuse a version of the change
	Gone         int `json:"gone,omitempty"`    // proxies that disconnected before they acknowledged
	Pending      int `json:"pending"`           // connected proxies that have not answered
	// Half, Most and All are the times in seconds from the commit until 50, 99 and 100 % of the proxies had
	// acknowledged. The percentages are of Affected without Gone. Half and Most may be up to 41 % too long. A time is 0
	// if fewer proxies have acknowledged so far, or if no proxy is affected.
	Half float64 `json:"p50_seconds,omitempty"`
	Most float64 `json:"p99_seconds,omitempty"`
	All  float64 `json:"p100_seconds,omitempty"`
}

// ChangeParameters are the names of the parameters of /api/v1/changes.
var ChangeParameters = []string{"lane", "object", "limit", "continue"}

// ChangeOf merges reports of one lane into one Change. There must be at least one report. The argument replicas becomes
// Change.Replicas. Change.Objects is nil if no report lists an object.
func ChangeOf(reports []ledger.Report, replicas int) Change {
	c := Change{Lane: reports[0].Lane.String(), First: reports[0].First, Last: reports[0].Last, Since: reports[0].Since, Replicas: replicas}
	var counts ledger.Counts
	seen := map[string]bool{}
	for _, r := range reports {
		c.First, c.Last, counts = min(c.First, r.First), max(c.Last, r.Last), counts.Plus(r.Counts)
		if r.Since.Before(c.Since) {
			c.Since = r.Since
		}
		for _, name := range r.Objects {
			if !seen[name] {
				seen[name] = true
				c.Objects = append(c.Objects, name)
			}
		}
		c.More = max(c.More, r.More)
	}
	slices.Sort(c.Objects)
	c.Views, c.Affected, c.Acknowledged = counts.Views, counts.Affected, counts.Acknowledged()
	c.Refused, c.Gone, c.Pending = counts.Refused, counts.Gone, counts.Pending()
	for share, into := range map[float64]*float64{0.5: &c.Half, 0.99: &c.Most, 1: &c.All} {
		if took, ok := counts.Until(share); ok {
			*into = took.Round(time.Millisecond / 10).Seconds()
		}
	}
	return c
}

// Objects parses the parameter object: names of objects, separated by commas. Each name has the form of Change.Objects.
// The result is a set of names, which is never nil. An empty set selects all objects.
func Objects(q url.Values) map[string]bool {
	all := map[string]bool{}
	for name := range strings.SplitSeq(q.Get("object"), ",") {
		if name != "" {
			all[name] = true
		}
	}
	return all
}

// MergeChanges merges the replicas' reports into items, sorted by descending Last, and returns the items in the window
// w. An empty lane selects both lanes. If objects is not empty, MergeChanges drops items that list no object of this
// set. MergeChanges sets only Items and Next of the answer.
func MergeChanges(w Window, lane string, objects map[string]bool, parts []From[[]ledger.Report]) (a Answer[Change]) {
	type report struct {
		ledger.Report
		replica string
	}
	var all []report
	for _, f := range parts {
		for _, r := range f.Part {
			if lane == "" || lane == r.Lane.String() {
				all = append(all, report{r, f.Replica})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b report) int { return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.First, b.First)) })
	var items []Change
	for i := 0; i < len(all); {
		group, replicas, last := []ledger.Report{}, map[string]bool{}, all[i].Last
		for ; i < len(all) && (len(group) == 0 || all[i].Lane == group[0].Lane && all[i].First <= last); i++ {
			group, last = append(group, all[i].Report), max(last, all[i].Last)
			replicas[all[i].replica] = true
		}
		if c := ChangeOf(group, len(replicas)); len(objects) == 0 || slices.ContainsFunc(c.Objects, func(o string) bool { return objects[o] }) {
			items = append(items, c)
		}
	}
	a.Items, a.Next = cut(w, items, false, func(c *Change) string {
		return strings.Join([]string{descending(c.Last), c.Lane, descending(c.First)}, "\x00")
	})
	return a
}

// descending returns a text of fixed length for a revision. The text sorts before the texts of all smaller revisions.
func descending(revision int64) string {
	text := strconv.FormatInt(1<<62-revision, 10)
	return strings.Repeat("0", max(19-len(text), 0)) + text
}
