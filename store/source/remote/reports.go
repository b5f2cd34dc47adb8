package remote

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// clusters returns a copy of the map of running clusters, by name.
func (k *Clusters) clusters() map[string]*cluster {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.running)
}

// Problems returns the current problems of the Secrets and of the clusters, sorted by object and message. The problem
// of a cluster that cannot be read in full contains the time at which this state began. Without a Sealer, each named
// cluster has a warning that its tokens are not verified. The caller owns the slice.
func (k *Clusters) Problems() []object.Problem {
	k.mu.Lock()
	all, wrong, forbidden := slices.Concat(k.problems, k.refused, k.failedChecks()), k.wrong, k.forbidden
	if k.Sealer == nil {
		for _, w := range k.wanted {
			p := w.problem(k.Namespace, problem.NotAllowed, "tokens of cluster "+w.cluster+" are not verified: the leader has no key "+
				"encryption key (--kek), under which it stores the credentials of other clusters for other processes")
			p.Severity = problem.Warning
			all = append(all, p)
		}
	}
	k.mu.Unlock()
	if wrong != "" {
		p := object.Problem{ID: object.ID{Origin: origin.New("", origin.Kube), Kind: "Secret", Namespace: k.Namespace}, Location: "Kubernetes",
			Code: problem.Unreadable, Severity: problem.Error,
			Message: "Secrets with the label " + Label + " cannot be read: " + wrong + "; the clusters known so far are still read"}
		if forbidden {
			p.Code, p.Severity = problem.NotAllowed, problem.Warning
			p.Message = "other clusters are not followed, for this process lacks the right to list and watch Secrets of its namespace: " +
				wrong + "; the clusters known so far are still read"
		}
		all = append(all, p)
	}
	for name, c := range k.clusters() {
		more := c.source.Problems()
		broken := slices.ContainsFunc(more, func(p object.Problem) bool { return p.Code == problem.Unreadable })
		if whole := k.lastWhole(c, broken); broken {
			message := fmt.Sprintf("cluster %s has not been read since this process leads, %s; its stored objects stay in effect",
				name, c.since.UTC().Format(time.RFC3339))
			if !whole.IsZero() {
				message = fmt.Sprintf("cluster %s is unreachable, or cannot be read in full, since %s; its stored objects stay in effect",
					name, whole.UTC().Format(time.RFC3339))
			}
			all = append(all, object.Problem{ID: object.ID{Origin: c.source.Origin()}, Location: "Kubernetes",
				Code: problem.Unreadable, Analyzer: problem.ClusterStale, Severity: problem.Error, Message: message})
		}
		all = append(all, more...)
	}
	slices.SortStableFunc(all, func(a, b object.Problem) int { return cmp.Or(a.ID.Compare(b.ID), cmp.Compare(a.Message, b.Message)) })
	return all
}

// lastWhole returns the time until which a cluster was read completely, before its present failure. The parameter
// failing reports whether the cluster has a failure now. The time stays fixed until the failure ends, because a problem
// with a changed text would count as a new problem. The zero time means that the cluster is read completely now, or
// that it was never read.
func (k *Clusters) lastWhole(c *cluster, failing bool) time.Time {
	until, _ := c.source.ReadUntil()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !failing {
		c.whole = time.Time{}
	} else if c.whole.IsZero() {
		c.whole = until
	}
	return c.whole
}

// ReadUntil calls report for each cluster whose objects were all emitted once, in no particular order. The argument
// until is the time up to which the cluster's Pods and Namespaces were read (kube.Source.ReadUntil); it is never zero.
// If accounts is true, the time covers the cluster's ServiceAccounts too. The argument everywhere reports whether all
// namespaces are read.
func (k *Clusters) ReadUntil(report func(of origin.Origin, until time.Time, everywhere, accounts bool)) {
	for _, c := range k.clusters() {
		if until, everywhere := c.source.ReadUntil(); !until.IsZero() {
			report(c.source.Origin(), until, everywhere, c.source.Accounts())
		}
	}
}

// Gauges sets the metrics for the number of clusters that are being read, and for the age of each cluster's state. The
// age is the time in seconds from ReadUntil to now, or from the start of the reading if ReadUntil does not report the
// cluster.
func (k *Clusters) Gauges(now time.Time) {
	obs.RemoteAge.Reset()
	read := 0
	for name, c := range k.clusters() {
		read++
		until, _ := c.source.ReadUntil()
		if until.IsZero() {
			until = c.since
		}
		obs.RemoteAge.WithLabelValues(name).Set(max(now.Sub(until), 0).Seconds())
	}
	obs.ManagedClusters.WithLabelValues("remote").Set(float64(read))
}
