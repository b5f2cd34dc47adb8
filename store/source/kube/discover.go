package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver/listwatch"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// served returns the kinds of Istio and of the Gateway API that the API server serves. For a cluster other than the
// config cluster, it returns WorkloadEntry only. It returns an error while the server is not ready, because a starting
// server may not know all kinds.
func (s *Source) served(ctx context.Context) (map[kindID]kind, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Answer, listwatch.ErrNoAnswer)
	defer cancel()
	if err := s.clients.get(ctx, "/readyz", nil); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("it is not ready: %w", err)
	}
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	return s.kindsOf(ctx, groups)
}

// defined returns the served kinds of the given groups, except kinds whose definition is being deleted.
func (s *Source) defined(ctx context.Context, names map[string]bool) (map[kindID]kind, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Answer, listwatch.ErrNoAnswer)
	defer cancel()
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	return s.kindsOf(ctx, slices.DeleteFunc(groups, func(g metav1.APIGroup) bool { return !names[g.Name] }))
}

// kindsOf returns the kinds of groups that this Source can read. A kind without the verb create counts as not served:
// its definition is being deleted (apiextensions-apiserver, customresource_discovery_controller.go).
func (s *Source) kindsOf(ctx context.Context, groups []metav1.APIGroup) (map[kindID]kind, error) {
	found := map[kindID]kind{}
	for _, v := range s.resources(ctx, groups) {
		if v.err != nil && known[v.group] == nil {
			// The objects of this group are only reported. Its API server may be an aggregated one that is unavailable,
			// and must not delay other groups.
			continue
		}
		if v.err != nil {
			return nil, v.err
		}
		for _, r := range v.list.APIResources {
			k := s.custom(v.group, v.version, r.Kind, r.Name, r.Namespaced)
			listed := slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
			created := slices.Contains(r.Verbs, "create") && !strings.Contains(r.Name, "/")
			mine := s.Cluster == "" || k.id() == workloadEntries
			if _, better := found[k.id()]; listed && created && mine && !better && !s.ignored(r.Name, v.group) {
				found[k.id()] = k
			}
		}
	}
	return found, nil
}

// version is one served version of a group, with its resources. A kind may be served in fewer versions than its group.
type version struct {
	group, version string
	list           metav1.APIResourceList
	err            error
}

// resources requests the resources of each group, in every version that this Source reads, the best version of a group
// first. The requests are concurrent, since a busy API server answers each of them slowly.
func (s *Source) resources(ctx context.Context, groups []metav1.APIGroup) (all []*version) {
	for _, g := range groups {
		if !wanted(g.Name) {
			continue
		}
		served := []string{g.PreferredVersion.Version}
		for _, v := range g.Versions {
			if v.Version != g.PreferredVersion.Version {
				served = append(served, v.Version)
			}
		}
		for _, v := range inOrder(g.Name, served) {
			all = append(all, &version{group: g.Name, version: v})
		}
	}
	var asks sync.WaitGroup
	for _, v := range all {
		asks.Go(func() { v.err = s.clients.get(ctx, "/apis/"+v.group+"/"+v.version, &v.list) })
	}
	asks.Wait()
	return all
}

// groups requests the API groups that the API server serves. For a cluster other than the config cluster, it requests
// only the group of WorkloadEntry. If this request is forbidden, the group counts as not served, and Problems reports
// the kind. By default every account has the right to discovery (system:discovery).
func (s *Source) groups(ctx context.Context) ([]metav1.APIGroup, error) {
	if s.Cluster == "" {
		var all metav1.APIGroupList
		err := s.clients.get(ctx, "/apis", &all)
		return all.Groups, err
	}
	var one metav1.APIGroup
	err := s.clients.get(ctx, "/apis/"+workloadEntries.group, &one)
	hidden := apierrors.IsForbidden(err)
	s.mu.Lock()
	s.hidden = hidden
	s.mu.Unlock()
	if hidden || apierrors.IsNotFound(err) {
		return nil, nil
	}
	// The name is set here, because a server could return the name of a group whose versions are all read.
	one.Name = workloadEntries.group
	return []metav1.APIGroup{one}, err
}

// inOrder returns the served versions of a group that this Source can read, the best first.
func inOrder(group string, served []string) (all []string) {
	for len(served) > 0 {
		v := best(group, served)
		if v == "" {
			break
		}
		all = append(all, v)
		served = slices.DeleteFunc(slices.Clone(served), func(s string) bool { return s == v })
	}
	return all
}

// missing is the number of consecutive discoveries without a kind after which the kind counts as gone.
const missing = 3

// discovered applies the result of a discovery to the followers, each of which reads one kind. It returns the kinds
// that need a new follower. If err is not nil, the known kinds continue to be read.
func (s *Source) discovered(served map[kindID]kind, err error) (start []kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrong = ""; err != nil {
		s.wrong = brief(err)
		return nil
	}
	for id, k := range served {
		switch f := s.kinds[id]; {
		case f == nil:
			start = append(start, k)
			if s.emittedSynced {
				s.Log.Info("a kind is served that was not: it is read", obs.KeyKind, k.kind, obs.KeyVersion, k.version)
			}
		case f.kind.version != k.version || f.gone:
			f.missed, f.gone = 0, false
			f.use(k)
		default:
			f.missed = 0
		}
	}
	for id, f := range s.kinds {
		if _, is := served[id]; is || !wanted(id.group) {
			continue
		}
		if f.missed++; f.missed < missing || f.gone {
			continue
		}
		f.gone = true
		s.Log.Info("a kind is not served any more", obs.KeyKind, id.kind)
		if !f.complete { // its first list will never arrive
			f.done()
		}
		f.replace(nil, object.Undefined)
	}
	s.dropKinds()
	slices.SortFunc(start, func(a, b kind) int { return strings.Compare(a.group+"/"+a.kind, b.group+"/"+b.kind) })
	return start
}

// dropKinds stops the followers of kinds that are no longer served and whose deletions were emitted. The caller has the
// lock.
func (s *Source) dropKinds() {
	for id, f := range s.kinds {
		if f.gone && len(f.table.all) == 0 {
			f.stop()
			delete(s.kinds, id)
		}
	}
}

// brief returns the cause of an error as one line of at most 300 characters.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		err = listwatch.ErrNoAnswer
	}
	return fmt.Sprintf("%.300s", strings.Join(strings.Fields(problem.Cause(err)), " "))
}
