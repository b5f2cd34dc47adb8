package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/push/inspect"
)

// behind is the maximum delay of the leader. The delay is the age of the cluster's newest state that the leader has
// stored completely. In a cluster without changes, the API server confirms this state about every two minutes.
const behind = 3 * time.Minute

// leaderCheck is the subject of all results about the leader.
var leaderCheck = NameLeader.of("leader")

// leader finds the leader among the replicas with role ingest, and checks its progress.
func (k *checker) leader(ctx context.Context) {
	candidates := k.processes("ingest")
	if len(candidates) == 0 {
		k.add(leaderCheck, Failure, "no ready replica has role ingest: changes of the configuration reach no proxy",
			"see why its Pods are not ready")
		return
	}
	var last error
	for _, r := range candidates {
		var seen inspect.Leader
		if err := r.debug(ctx, "/debug/leader", &seen); err != nil {
			last = fmt.Errorf("%s: %w", r.Name, err)
			continue
		}
		if seen.Self {
			k.leading(seen)
			return
		}
		if k.ending(seen.Name) {
			k.add(leaderCheck, Warning, seen.Name+" leads, and is being deleted: another process takes over after its end",
				"wait for the new leader")
			return
		}
		if seen.Name != "" {
			last = fmt.Errorf("%s leads, as %s says, and is not among the ready replicas", seen.Name, r.Name)
		}
	}
	if last != nil {
		k.add(leaderCheck, Failure, last.Error(), "see the logs of the replicas with role ingest, and whether etcd answers")
		return
	}
	k.add(leaderCheck, Failure, "no process leads: changes of the configuration reach no proxy",
		"see the logs of the replicas with role ingest: they say why they give up")
}

// ending reports whether a Pod of the control plane is being deleted.
func (k *checker) ending(name string) bool {
	return slices.ContainsFunc(k.pods, func(pod corev1.Pod) bool { return pod.Name == name && pod.DeletionTimestamp != nil })
}

// leading adds the result for the process that leads. The argument l is the page /debug/leader of this process.
func (k *checker) leading(l inspect.Leader) {
	const do = "see the leader's log: it says what the API server refuses, or does not answer"
	age := time.Since(l.Read).Round(time.Second)
	switch {
	case l.Read.IsZero() && l.Settled: // the leader states the time half a minute after everything is stored
		k.add(leaderCheck, OK, l.Name+" leads, and has stored everything that the cluster has", "")
	case l.Read.IsZero():
		k.add(leaderCheck, Warning, l.Name+" leads, and has not read the whole cluster yet", "wait a moment; else "+do)
	case age > behind:
		k.add(leaderCheck.at(age.String()), Failure, fmt.Sprintf("%s leads, and what it has stored of the cluster is %s old", l.Name, age), do)
	case !l.Writes:
		k.add(leaderCheck.at(age.String()), OK, fmt.Sprintf("%s leads; the API server confirmed %s ago that nothing was missing; "+
			"another revision is promoted, so this one does not write to Kubernetes", l.Name, age), "")
	default:
		k.add(leaderCheck.at(age.String()), OK,
			fmt.Sprintf("%s leads; the API server confirmed %s ago that nothing was missing", l.Name, age), "")
	}
}
