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

// served asks the API server which kinds of Istio and of the Gateway API it serves; of another cluster, whether WorkloadEntries. While it starts it may not
// know all of them yet, so it has to be ready.
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

// defined are the kinds of some groups that the API server serves, and whose definition is not being deleted.
func (s *Source) defined(ctx context.Context, of map[string]bool) (map[kindID]kind, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Answer, listwatch.ErrNoAnswer)
	defer cancel()
	groups, err := s.groups(ctx)
	if err != nil {
		return nil, err
	}
	return s.kindsOf(ctx, slices.DeleteFunc(groups, func(g metav1.APIGroup) bool { return !of[g.Name] }))
}

// kindsOf are the kinds of groups that can be read. Of one whose definition is being deleted nothing can be created (apiextensions-apiserver,
// customresource_discovery_controller.go): it counts as not served.
func (s *Source) kindsOf(ctx context.Context, groups []metav1.APIGroup) (map[kindID]kind, error) {
	found := map[kindID]kind{}
	for _, v := range s.resources(ctx, groups) {
		if v.err != nil && known[v.group] == nil { // whose objects are only reported: its API server, which may be an aggregated one, holds nothing up
			continue
		}
		if v.err != nil {
			return nil, v.err
		}
		for _, r := range v.list.APIResources {
			k := s.custom(v.group, v.version, r.Kind, r.Name, r.Namespaced)
			watched := slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") && slices.Contains(r.Verbs, "create") && !strings.Contains(r.Name, "/")
			mine := s.Cluster == "" || k.id() == workloadEntries
			if _, better := found[k.id()]; watched && mine && !better && !s.ignored(r.Name, v.group) {
				found[k.id()] = k
			}
		}
	}
	return found, nil
}

// version is a version of a group, and the resources that it has; a kind may be served in fewer versions than its group.
type version struct {
	group, version string
	list           metav1.APIResourceList
	err            error
}

// resources are those of the versions that are read, of each group the best one first. They are asked for at once: an API server that is busy, as while a leader
// starts, takes its time for each.
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

// groups is the groups of kinds that the API server serves; of another cluster, that of WorkloadEntries, if it has it. Where that one may not be asked for,
// which every account may as a rule (system:discovery), it counts as not served, and Problems says so.
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
	one.Name = workloadEntries.group // whatever the server calls it: of a known group the known versions are asked for, of another all that it lists
	return []metav1.APIGroup{one}, err
}

// inOrder is the versions of a group that are read, the best first.
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

// missing is how many times in a row a kind must not be served to count as gone.
const missing = 3

// discovered takes what the API server serves now, and returns the kinds that are new.
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
		if !f.complete { // its first list will not come
			f.done()
		}
		f.replace(nil, object.Undefined)
	}
	s.dropKinds()
	slices.SortFunc(start, func(a, b kind) int { return strings.Compare(a.group+"/"+a.kind, b.group+"/"+b.kind) })
	return start
}

// dropKinds ends the reading of kinds that are not served any more, once that was emitted. With the lock.
func (s *Source) dropKinds() {
	for id, f := range s.kinds {
		if f.gone && len(f.table.all) == 0 {
			f.stop()
			delete(s.kinds, id)
		}
	}
}

// brief is an error in one line of bounded length.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		err = listwatch.ErrNoAnswer
	}
	return fmt.Sprintf("%.300s", strings.Join(strings.Fields(problem.Cause(err)), " "))
}
