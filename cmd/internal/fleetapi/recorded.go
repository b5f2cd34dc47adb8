package fleetapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// MaxRecorded is the maximum size in bytes of the encoded counts of one replica.
const MaxRecorded = 4 << 10

// maxRecordedName is the maximum length in bytes of a recorded version, zone or namespace. Clients choose versions and
// zones.
const maxRecordedName = 64

// Recorded has the counts of one replica's proxies. The replica's record in etcd contains them.
type Recorded struct {
	At   time.Time `json:"at"` // time of the count, by the replica's clock
	Sums Sums      `json:"sums"`
}

// Last has the newest recorded counts of a replica.
type Last struct {
	Recorded
	Age float64 `json:"age_seconds"` // seconds from At to the answer, at least 0
}

// RecordedSums is one item of /api/v1/sums.
type RecordedSums struct {
	Replica string `json:"replica"`
	State   string `json:"state"` // warming, ready, leaving, or Stopped
	Last
}

// Since returns r with its age at the time now, rounded to milliseconds. If At is after now, the age is 0.
func (r Recorded) Since(now time.Time) Last {
	return Last{r, max(now.Sub(r.At), 0).Round(time.Millisecond).Seconds()}
}

// recorded is the stored form of Recorded. Each list contains three counts of proxies: in sync, behind, refusing.
type recorded struct {
	At         int64             `json:"at"` // Unix milliseconds
	Total      [3]int            `json:"t"`
	Versions   map[string][3]int `json:"v,omitempty"`
	Zones      map[string][3]int `json:"z,omitempty"`
	Namespaces map[string][3]int `json:"n,omitempty"`
}

// Encode returns the stored form, of at most MaxRecorded bytes. It contains At in milliseconds, and leaves out Gone and
// Replicas. Versions, zones and namespaces that are longer than 64 bytes, or for which there is no room, are counted
// under Others. There is room first for the values with the most refusing proxies. If these numbers are equal, the
// number of proxies behind decides, and then the number of proxies in sync.
func (r Recorded) Encode() []byte {
	for most := maxValues; ; most /= 2 {
		out, err := json.Marshal(recorded{At: r.At.UnixMilli(), Total: list(r.Sums.Total), Versions: largest(r.Sums.Versions, most),
			Zones: largest(r.Sums.Zones, most), Namespaces: largest(r.Sums.Namespaces, most)})
		if err != nil {
			panic(err) // impossible for numbers and texts
		}
		if len(out) <= MaxRecorded || most == 0 {
			return out
		}
	}
}

// list returns counts in the stored form.
func list(c Counts) [3]int { return [3]int{c.InSync, c.Behind, c.Refusing} }

// largest returns the counts of the first values in the order that Encode describes. The argument limit is the maximum
// number of values. All further values are counted under Others.
func largest(counts map[string]Counts, limit int) map[string][3]int {
	values := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		x, y := counts[a], counts[b]
		return cmp.Or(cmp.Compare(y.Refusing, x.Refusing), cmp.Compare(y.Behind, x.Behind), cmp.Compare(y.InSync, x.InSync), cmp.Compare(a, b))
	})
	out, rest := map[string][3]int{}, Counts{}
	for _, value := range values {
		if len(out) >= limit || len(value) > maxRecordedName || value == Others {
			rest = rest.plus(counts[value])
			continue
		}
		out[value] = list(counts[value])
	}
	if rest.Connected() > 0 {
		out[Others] = list(rest)
	}
	return out
}

// DecodeRecorded parses the stored form of a replica's counts from untrusted bytes. Sums.Replicas of the result has the
// total of this replica. DecodeRecorded fails if the bytes are more than MaxRecorded or malformed, or if a count is
// negative or above 2^24. The error names the replica, and the result is zero.
func DecodeRecorded(b []byte, replica string) (r Recorded, err error) {
	var in recorded
	switch {
	case len(b) > MaxRecorded:
		return r, fmt.Errorf("sums of replica %s: %d bytes, at most %d", replica, len(b), MaxRecorded)
	default:
		if err := json.Unmarshal(b, &in); err != nil {
			return r, fmt.Errorf("sums of replica %s: %w", replica, err)
		}
	}
	r.At = time.UnixMilli(in.At).UTC()
	total, err := counted(in.Total)
	if err != nil {
		return Recorded{}, fmt.Errorf("sums of replica %s: %w", replica, err)
	}
	r.Sums.Total, r.Sums.Replicas = total, map[string]Counts{replica: total}
	for _, pair := range []struct {
		into *map[string]Counts
		from map[string][3]int
	}{{&r.Sums.Versions, in.Versions}, {&r.Sums.Zones, in.Zones}, {&r.Sums.Namespaces, in.Namespaces}} {
		for value, l := range pair.from {
			c, err := counted(l)
			if err != nil {
				return Recorded{}, fmt.Errorf("sums of replica %s, %.60q: %w", replica, value, err)
			}
			addTo(pair.into, value, c)
		}
	}
	return r, nil
}

// counted returns the counts of a stored list (see recorded). It fails if a count is out of bounds.
func counted(l [3]int) (Counts, error) {
	const most = 1 << 24 // proxies of one replica
	if slices.Min(l[:]) < 0 || slices.Max(l[:]) > most {
		return Counts{}, fmt.Errorf("counts %v are out of bounds", l)
	}
	return Counts{InSync: l[0], Behind: l[1], Refusing: l[2]}, nil
}

// MergeRecorded returns the answer of /api/v1/sums. It sorts its argument by Replica in place, and uses the slice as
// Items of the answer. Sums adds up the counts of the replicas that are not Stopped. MergeRecorded sets only Sums and
// Items of the answer.
func MergeRecorded(all []RecordedSums) (a Answer[RecordedSums]) {
	a.Sums, a.Items = &Sums{}, all
	slices.SortFunc(all, func(a, b RecordedSums) int { return cmp.Compare(a.Replica, b.Replica) })
	for i := range all {
		if all[i].State != Stopped {
			a.Sums.plus(&all[i].Sums)
		}
	}
	return a
}

// Stopped is the state of a replica whose lease has ended although the replica was not leaving.
const Stopped = "stopped"
