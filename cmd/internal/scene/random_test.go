package scene

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"navarch.io/navarch/push/envoytest"
)

var seeds = flag.Uint64("seeds", 4, "how many random orders TestAnyOrder tries")

// The expectations of all scenes also hold when their files are added, changed and removed in any order, while proxies
// stall, leave and return. No proxy ever receives a forbidden response, and all end with the resources that a plan from
// scratch has.
func TestAnyOrder(t *testing.T) {
	files := sceneFiles(t)
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "shop"), os.DirFS(filepath.Join("testdata", "shop"))); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s, err := newStage(dir, envoytest.Binary(t), true)
				if err != nil {
					t.Fatal(err)
				}
				defer s.pipeline.stop()
				r := &rambler{stage: s, Rand: rand.New(rand.NewPCG(seed, 1)), files: files}
				r.must(s.apply([]string{"shop"}))
				for _, args := range [][]string{{"web"}, {"catalog", "prompt"}, {"reviews", "sotw"}, {"ratings"}, {"reviews-2", "prompt", "sotw"}} {
					r.must(s.connect(args))
				}
				for step := range 60 {
					r.steps = append(r.steps, fmt.Sprintf("step %d", step))
					for range 1 + r.IntN(3) {
						r.ramble()
					}
					if r.err == nil {
						r.err = s.settle()
					}
					if bad := s.check(step%20 == 19); r.err != nil || len(bad) > 0 {
						t.Fatalf("after\n  %s\n%v\n%s", strings.Join(r.steps, "\n  "), r.err, strings.Join(bad, "\n"))
					}
				}
			})
		})
	}
}

// sceneFiles returns the configurations of all scenes.
func sceneFiles(t *testing.T) (all []txtar.File) {
	scenes, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(scenes) == 0 {
		t.Fatal(scenes, err)
	}
	for _, path := range scenes {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if strings.HasSuffix(f.Name, ".yaml") {
				name := strings.TrimSuffix(filepath.Base(path), ".txtar") + "-" + strings.ReplaceAll(f.Name, "/", "-")
				all = append(all, txtar.File{Name: name, Data: f.Data})
			}
		}
	}
	return all
}

// rambler does things at random.
type rambler struct {
	*stage
	*rand.Rand
	files []txtar.File
	steps []string
	err   error
}

func (r *rambler) must(_ string, err error) {
	if r.err == nil && err != nil {
		r.err = err
	}
}

// edits are harmless exchanges that some file or other has room for.
var edits = []string{"ready: true", "ready: false", "weight: 90", "weight: 50", "port: 80,", "port: 81,", "version: v1", "version: v2",
	"host: reviews", "host: ratings", "name: http", "name: tcp", "namespace: shop", "namespace: backend", "app: web", "app: catalog",
	"hosts: [reviews]", "hosts: [ratings]", `"*"`, `"."`, "clusterIP: 10", "clusterIP: None # 10", "resolution: NONE", "resolution: DNS",
	"SIDECAR_OUTBOUND", "SIDECAR_INBOUND", "protocol: TCP", "protocol: HTTP", "timeout: 1s", "timeout: 2s", "targetPort: 8080", "targetPort: 8081"}

func (r *rambler) ramble() {
	proxies := r.each()
	a := proxies[r.IntN(len(proxies))]
	there, err := os.ReadDir(r.pipeline.folder)
	r.must("", err)
	name := ""
	if len(there) > 0 {
		name = there[r.IntN(len(there))].Name()
	}
	did := ""
	switch n := r.IntN(20); {
	case n < 7:
		f := r.files[r.IntN(len(r.files))]
		did = "apply " + f.Name
		r.must("", r.pipeline.put(map[string][]byte{f.Name: f.Data}))
	case n < 10 && name != "":
		did = "remove " + name
		r.must(r.remove([]string{name}))
	case n < 15 && name != "":
		did = "edit " + name + r.change(name)
	case n < 16:
		did = "apply shop"
		r.must(r.apply([]string{"shop"}))
	case n < 17:
		did = "sleep"
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		r.take()
	case n < 18:
		did = "stall or resume one"
		if a.stalled = !a.stalled; !a.stalled && a.joined != nil {
			a.acknowledge()
		}
	case a.joined != nil:
		did = "disconnect one"
		a.joined.Leave()
		a.joined = nil
	default:
		did = "reconnect one"
		a.stalled = false
		r.must("", r.settle())
		r.must("", r.join(a))
		a.open()
	}
	r.steps = append(r.steps, did)
}

// change exchanges one thing in a file of the folder for its like.
func (r *rambler) change(name string) string {
	data, err := os.ReadFile(filepath.Join(r.pipeline.folder, name))
	if err != nil {
		r.must("", err)
		return ""
	}
	for _, i := range r.Perm(len(edits)) {
		if from, to := edits[i], edits[i^1]; strings.Contains(string(data), from) {
			n := 1 + r.IntN(2)
			r.must("", r.pipeline.put(map[string][]byte{name: []byte(strings.Replace(string(data), from, to, n))}))
			return fmt.Sprintf(" %q %q %d", from, to, n)
		}
	}
	return ""
}

// endResumes advances the time until a server assumes that a reconnected proxy has sent all of its subscriptions.
func (s *stage) endResumes() {
	for _, a := range s.each() {
		if a.joined != nil {
			a.state.EndResume()
		}
	}
	s.take()
}
