package serve

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// A turn that arrives while a goroutine sends is not lost: a turn for all becomes this goroutine's task, and its
// lookups from before the turn are repeated before it stops.
func TestTurnWhileSomebodySends(t *testing.T) {
	b := &board{}
	srv := New(Config{Planner: newPlanner(), AgentTypes: []AgentType{b.agentType()}})
	st := streamsOf(t, srv, 1, 0)[0]
	if err := st.take(t.Context(), encoded(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: agentURL})); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if !st.begin(true, 0) || st.sender.task != urgents {
		t.Fatal("nobody sends, and the turn is not taken")
	}
	before := st.offersNow()
	b.res.Store(agentResource(t, "A", "1"))
	if st.begin(false, 0) || st.sender.task != all {
		t.Fatal("two send, or the turn for all is forgotten")
	}
	if _, f, _ := st.next(now, nil, &before); f != lookAgain {
		t.Fatalf("with what there was before the turn: %d", f)
	}
	after := st.offersNow()
	if out, f, _ := st.next(now, nil, &after); f != something || out.blocks || len(out.reply.Set) != 1 {
		t.Fatalf("with what there is: %d, %v", f, out.reply)
	}
	if _, f, _ := st.next(now, nil, &after); f != nothing || st.sender.task != nobody {
		t.Errorf("when all is sent: %d", f)
	}
	st.end(nil)
	if st.begin(false, 0) {
		t.Error("somebody sends on a stream that has ended")
	}
}

// Only methods of exchange (with receiver x) access the fields that an exchange guards; other code passes it events.
func TestExchangeIsTheOnlyOwner(t *testing.T) {
	guarded := regexp.MustCompile(`\bst\.(exchange|mu|locked|state|sender|pushed|secretsHeld|rollout|closed|spoke|resumeOver|cause|waiting|agentWaiting|refusals|retries|reports|answers)\b`)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if found := guarded.FindString(line); found != "" {
				t.Errorf("%s:%d: %s", file, i+1, found)
			}
		}
	}
}
