package remote

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver"
)

// The API servers of other clusters are those that the Secrets name, the config cluster's never among them: another kubeconfig is another client, one that
// is refused changes nothing, and a cluster whose Secret is deleted is there no more. What changes nothing is not notified.
func TestServersFollowSecrets(t *testing.T) {
	var notified []map[string]*apiserver.Client
	var s *Servers
	s = newServers(Config{Own: "home"}, func(all map[string]*apiserver.Client) {
		notified = append(notified, all)
		if named := s.Named(); len(named) < len(all) { // whoever is notified may ask
			t.Errorf("Secrets of %v, and servers of %v", named, all)
		}
	})
	last := func(want string, times int) map[string]*apiserver.Client {
		t.Helper()
		if len(notified) != times {
			t.Fatalf("notified %d times, want %d", len(notified), times)
		}
		all := notified[times-1]
		if got := strings.Join(slices.Sorted(maps.Keys(all)), " "); got != want {
			t.Errorf("clusters %q, want %q", got, want)
		}
		return all
	}
	take := func(data map[string]string) { s.take([]*corev1.Secret{secret("a", 1, data)}) }
	take(nil)
	last("", 1)
	take(map[string]string{"home": kubeconfig("h"), "east": kubeconfig("e"), "west": kubeconfig("w"), "bad": "token: ["})
	first := last("east west", 2)
	take(map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w")})
	last("east west", 2)
	take(map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w2")})
	second := last("east west", 3)
	if second["east"] != first["east"] || second["west"] == first["west"] {
		t.Error("the client of east is another one, or that of west is not")
	}
	take(map[string]string{"east": kubeconfig("e"), "west": strings.Replace(kubeconfig("w3"), `"token": "w3"`, `"tokenFile": "/our/token"`, 1)})
	last("east west", 3)
	take(map[string]string{"west": kubeconfig("w2")})
	if third := last("west", 4); third["west"] != second["west"] {
		t.Error("the client of west is another one")
	}
}

// That the right to read the Secrets is missing the log says once, however often it is looked for, and again when it was there meanwhile.
func TestMissingRightIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newServers(Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(map[string]*apiserver.Client) {})
		for i, forbidden := range []bool{true, true, true, false, true, true} {
			wrong := ""
			if forbidden {
				wrong = "403"
			}
			s.cannot(wrong, forbidden)
			time.Sleep(time.Minute)
			synctest.Wait()
			want := 1
			if i > 3 {
				want = 2
			}
			if n := strings.Count(log.String(), "lacks the right"); n != want {
				t.Errorf("after %d answers: %d lines, want %d", i+1, n, want)
			}
		}
	})
}
