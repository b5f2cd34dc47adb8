package scene

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"navarch.io/navarch/loadtest/cluster"
	"navarch.io/navarch/loadtest/mesh"
)

const (
	realClusters     = 5  // number of API servers, the config cluster's included
	replayedClusters = 45 // number of replayed API servers
	atRest           = 30 * time.Second
)

// oneOfMany changes the settings to those of one cluster of the scenario.
func oneOfMany(s *mesh.Settings) {
	s.Services, s.Namespaces = s.Services*3/5, max(1, s.Namespaces*3/5)
	s.Pods = 14
}

// others are the clusters beside the config cluster, while a scenario runs.
type others struct {
	real   []*cluster.Cluster
	replay *cluster.Replay // nil: not started yet
	named  map[string]cluster.Address
}

func (o *others) close() {
	if o.replay != nil {
		o.replay.Close()
	}
	for _, c := range o.real {
		c.Close()
	}
}

// kubeClusters measures the leader with 1, 2 and 5 real API servers, and then with all clusters.
func kubeClusters(s *stage) error {
	o := &others{named: map[string]cluster.Address{}}
	defer o.close()
	if err := s.joined(nil); err != nil {
		return err
	}
	n := max(2, int(realClusters*min(1, s.Scale)))
	rss := map[int]uint64{}
	for _, size := range slices.Compact([]int{1, 2, n}) {
		for len(o.real)+1 < size {
			if err := s.addCluster(o); err != nil {
				return err
			}
		}
		var err error
		if rss[size], err = s.withClusters(size, fmt.Sprintf("leader with %d API servers, RSS", size),
			fmt.Sprintf("leader with %d API servers, at rest", size)); err != nil {
			return err
		}
	}
	s.row(fmt.Sprintf("leader, RSS for each of API servers 2 to %d", n), "MB", (mb(rss[n])-mb(rss[1]))/float64(n-1))
	var err error
	if o.replay, err = o.real[0].Replay(); err != nil {
		return err
	}
	more := max(1, int(replayedClusters*min(1, s.Scale)))
	for i := range more {
		o.named[fmt.Sprintf("replayed-%d", i)] = o.replay.Address()
	}
	if err := s.cluster.Remote(s.ctx, secretOfClusters, o.named); err != nil {
		return err
	}
	all, err := s.withClusters(n+more, rowClustersRSS, rowClustersCPU)
	if err != nil {
		return err
	}
	s.row("leader, RSS for each cluster that is replayed", "MB", (mb(all)-mb(rss[n]))/float64(more))
	return s.equal()
}

// secretOfClusters is the Secret with the kubeconfigs of all clusters except the config cluster.
const secretOfClusters = "clusters"

// addCluster starts one more API server with the objects of the world, and publishes it to the servers.
func (s *stage) addCluster(o *others) error {
	name := fmt.Sprintf("real-%d", len(o.real))
	s.enter("starting the API server of cluster " + name)
	dir := filepath.Join(s.starter.dir, name)
	if err := makeDir(dir); err != nil {
		return err
	}
	c, err := s.cluster.Beside(name, dir)
	if err != nil {
		return err
	}
	o.real = append(o.real, c)
	if err := c.Fill(s.ctx, s.mesh.Files()); err != nil {
		return err
	}
	o.named[name] = c.Address()
	return s.cluster.Remote(s.ctx, secretOfClusters, o.named)
}

// withClusters waits until the replicas have the objects of n clusters and the leader is at rest. It returns the
// leader's resident memory in bytes, and adds rows with the two names.
func (s *stage) withClusters(n int, memory, processor string) (rss uint64, err error) {
	services := n * s.mesh.Settings.Services
	err = s.await(fmt.Sprintf("%d clusters are read", n), func() error {
		var all []error
		for _, one := range s.servers {
			all = append(all, one.holds(s.ctx, map[string]int{"Service": services, "Workload": services * s.mesh.Settings.Pods}))
		}
		return errors.Join(all...)
	})
	if err != nil {
		return 0, err
	}
	if err := s.quiet(); err != nil {
		return 0, err
	}
	leader := []*Server{s.writer}
	_, peak := usage(leader)
	if _, err := s.settledMemory(peak); err != nil {
		return 0, err
	}
	span := s.span(atRest)
	before := spent(leader)
	if err := s.pause(fmt.Sprintf("%d clusters, at rest", n), span); err != nil {
		return 0, err
	}
	cores := (spent(leader) - before).Seconds() / span.Seconds()
	_, rss = usage(leader)
	s.row(memory, "MB", mb(rss))
	s.row(processor, "cores", cores)
	return rss, nil
}
