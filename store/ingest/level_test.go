package ingest

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
)

// A leader whose build reads less than the stored level removes the records of unknown kinds, except closing ones:
// without those, proxies would permit requests that they refuse. At its own level it leaves all records.
func TestLoweringBelowABuild(t *testing.T) {
	s := kvtest.Start(t)
	for name, closing := range map[string]bool{"Novelty///shop/skippable": false, "Novelty///shop/closing": true} {
		raw, err := proto.Marshal(&model.RecordValue{Schema: model.Schema, Closing: closing})
		if err != nil {
			t.Fatal(err)
		}
		s.Put("records/"+name, string(raw))
	}
	novelties := func(want string) func(*kv.State) bool {
		return func(state *kv.State) bool {
			var found []string
			for _, v := range state.Values {
				if name, is := strings.CutPrefix(v.Path, "Novelty///shop/"); is {
					found = append(found, name)
				}
			}
			slices.Sort(found)
			return strings.Join(found, " ") == want
		}
	}
	l := lead(t, s, 3, put(t, svc))
	l.settles("at its own level", novelties("closing skippable"))
	l.loop.Level(Levelled{Level: model.Level, Below: true})
	l.settles("below what is stored", novelties("closing"))
	l.loop.Emit(Objects{put(t, vs("late", "1s"))})
	l.settles("the next change", func(state *kv.State) bool { return len(state.Values) == 3 && l.loop.Stored() == model.Level })
}
