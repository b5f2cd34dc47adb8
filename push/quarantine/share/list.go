package share

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
)

// record is the stored form of a quarantine.Report. Fields that were added later may be absent.
type record struct {
	View      string  `json:"view"` // serve.Proxy.ID, equal on all replicas
	Type      string  `json:"type"` // xds.Type.Noun
	Name      string  `json:"name"`
	Version   string  `json:"version"`
	Who       string  `json:"who"`          // the reporter, in hexadecimal
	At        int64   `json:"at"`           // Unix seconds
	Millis    int64   `json:"ms,omitempty"` // and milliseconds
	Envoy     string  `json:"envoy,omitempty"`
	Accepted  bool    `json:"accepted,omitempty"`
	Retry     bool    `json:"retry,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Text      string  `json:"error,omitempty"`
	Objects   []place `json:"places,omitempty"`
}

// place is the stored form of a model.Place.
type place struct {
	Record string `json:"record"` // path of the record below records/
	Field  string `json:"field,omitempty"`
}

// These bound the shared reports, because proxies are untrusted.
const (
	maxReports     = 512       // reports that one replica shares
	maxOfReporter  = 16        // reports of one reporter, so that no account fills the list
	maxName        = 2048      // bytes of a view's or a resource's name; reports with longer names are not shared
	maxShort       = 256       // bytes of a version, a version of Envoy or a namespace; reports with longer texts are not shared
	maxText        = 512       // bytes of an error message; longer messages are cut
	maxObjects     = 9         // objects of a report, each of at most maxText bytes
	maxListEncoded = 512 << 10 // bytes of one replica's list
)

// recordOf returns the stored form of a report.
func recordOf(r quarantine.Report) record {
	rec := record{View: r.View, Type: r.Type.Noun(), Name: r.Name, Version: r.Version, Who: hex.EncodeToString(r.Reporter[:]),
		At: r.At.Unix(), Millis: int64(r.At.Nanosecond() / 1e6), Envoy: r.Envoy, Accepted: r.Accepted, Retry: r.Retry, Namespace: r.Namespace,
		Text: r.Text}
	for _, at := range r.Objects {
		rec.Objects = append(rec.Objects, place{at.Key.Path(), at.Field})
	}
	return rec
}

// report returns the report of a record. It returns false if the record is invalid.
func (rec record) report() (r quarantine.Report, ok bool) {
	who, err := hex.DecodeString(rec.Who)
	if err != nil || len(who) != len(r.Reporter) || rec.Millis < 0 || rec.Millis > 999 {
		return r, false
	}
	r = quarantine.Report{Key: quarantine.Key{View: rec.View, Type: xds.ParseNoun(rec.Type), Name: rec.Name, Version: rec.Version},
		Reporter: quarantine.Reporter(who), Envoy: rec.Envoy, At: time.Unix(rec.At, rec.Millis*1e6), Accepted: rec.Accepted, Retry: rec.Retry,
		Namespace: rec.Namespace, Text: rec.Text}
	for _, at := range rec.Objects[:min(len(rec.Objects), maxObjects)] {
		if key, err := model.ParsePath(at.Record); err == nil { // otherwise this build does not know the kind
			r.Objects = append(r.Objects, model.Place{Key: key, Field: at.Field})
		}
	}
	return cut(r), valid(r)
}

// valid reports whether a report is complete and within the bounds.
func valid(r quarantine.Report) bool {
	return r.Name != "" && r.Version != "" && r.Type < xds.NumTypes && len(r.View) <= maxName && len(r.Name) <= maxName &&
		len(r.Version) <= maxShort && len(r.Envoy) <= maxShort && len(r.Namespace) <= maxShort
}

// cut bounds the texts and objects of a report.
func cut(r quarantine.Report) quarantine.Report {
	short := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "") }
	r.Text = short(r.Text)
	r.Objects = slices.DeleteFunc(slices.Clone(r.Objects[:min(len(r.Objects), maxObjects)]), func(at model.Place) bool {
		return len(at.Key.Path())+len(at.Field) > maxText
	})
	return r
}

// same reports whether two reports are the same answer of the same reporter to the same version.
func same(a, b quarantine.Report) bool {
	return a.Key == b.Key && a.Reporter == b.Reporter && a.Envoy == b.Envoy && a.Accepted == b.Accepted && a.Retry == b.Retry
}

// list contains this replica's reports, oldest first. It has no clock.
type list struct{ all []quarantine.Report }

// add adds a report, and reports whether the list has changed. It ignores an invalid report. A repeated report replaces
// the earlier one if it answers a retry, or if it is newer by 1/10 of quarantine.DefaultKeep; otherwise it is ignored.
func (l *list) add(r quarantine.Report) bool {
	if r = cut(r); !valid(r) {
		return false
	}
	if i := slices.IndexFunc(l.all, func(o quarantine.Report) bool { return same(o, r) }); i >= 0 {
		if !r.Retry && r.At.Sub(l.all[i].At) < quarantine.DefaultKeep/10 {
			return false
		}
		l.all = slices.Delete(l.all, i, i+1)
	}
	l.all = append(l.all, r)
	of := map[quarantine.Reporter]int{}
	for _, o := range l.all {
		of[o.Reporter]++
	}
	loser := r.Reporter
	switch {
	case of[loser] > maxOfReporter: // the reporter itself loses a report
	case len(l.all) > maxReports: // the reporter with most reports loses one, so that a flood only displaces itself
		for _, o := range l.all {
			if of[o.Reporter] > of[loser] {
				loser = o.Reporter
			}
		}
		if of[loser] == 1 {
			loser = l.all[0].Reporter
		}
	default:
		return true
	}
	oldest := l.oldestOf(loser)
	l.all = slices.Delete(l.all, oldest, oldest+1)
	return true
}

// oldestOf returns the index of a reporter's oldest report. If the reporter has several credentials, only reports by
// those with the most reports count.
func (l *list) oldestOf(by quarantine.Reporter) int {
	of, most := map[quarantine.Credential]int{}, 0
	for _, o := range l.all {
		if o.Reporter == by {
			of[o.Credential]++
			most = max(most, of[o.Credential])
		}
	}
	return slices.IndexFunc(l.all, func(o quarantine.Report) bool { return o.Reporter == by && of[o.Credential] == most })
}

// prune removes old reports that no longer count, and reports whether it removed any. The function relevant reports
// whether reports about a version still count.
func (l *list) prune(now time.Time, relevant func(quarantine.Key) bool) bool {
	before := len(l.all)
	l.all = slices.DeleteFunc(l.all, func(r quarantine.Report) bool {
		return now.Sub(r.At) >= quarantine.DefaultKeep && !relevant(r.Key)
	})
	return len(l.all) < before
}

// encode encodes the list as JSON. It leaves out the oldest reports if the list would be too long. If a newer report
// about the same version has a message, an older report is written without its message and objects.
func (l *list) encode() ([]byte, error) {
	all := make([]record, len(l.all))
	hasText := map[quarantine.Key]bool{}
	for i := len(l.all) - 1; i >= 0; i-- {
		all[i] = recordOf(l.all[i])
		if hasText[l.all[i].Key] {
			all[i].Text, all[i].Objects = "", nil
		}
		hasText[l.all[i].Key] = hasText[l.all[i].Key] || all[i].Text != ""
	}
	for from := 0; ; from += 1 + (len(all)-from)/8 {
		raw, err := json.Marshal(all[min(from, len(all)):])
		if err != nil || len(raw) <= maxListEncoded {
			return raw, err
		}
	}
}

// decode decodes a replica's list. It skips invalid records, and records beyond maxReports. It fails if raw is too long
// or not a JSON list of records.
func decode(raw []byte) ([]quarantine.Report, error) {
	if len(raw) > maxListEncoded {
		return nil, fmt.Errorf("%d bytes, at most %d are read", len(raw), maxListEncoded)
	}
	var all []record
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	var reports []quarantine.Report
	for _, rec := range all {
		if r, ok := rec.report(); ok && len(reports) < maxReports {
			reports = append(reports, r)
		}
	}
	return reports, nil
}

// known maps the path of another replica's list to the revision that was read.
type known map[string]int64

// read returns all reports of the lists in a folder that changed since the last call. The parameter own is the path of
// this replica's list, which is skipped. The result problems describes lists that cannot be read.
func (k known) read(f kv.Folder, own string) (reports []quarantine.Report, problems []string) {
	there := map[string]bool{}
	for _, blob := range f.Blobs {
		there[blob.Path] = true
		if blob.Path == own || k[blob.Path] == blob.Revision {
			continue
		}
		k[blob.Path] = blob.Revision
		all, err := decode(blob.Raw)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", blob.Path, err))
		}
		reports = append(reports, all...)
	}
	for path := range k {
		if !there[path] {
			delete(k, path)
		}
	}
	return reports, problems
}
