// Package scene runs the whole pipeline in one process, on scenes: files of configuration, steps, and what each proxy
// is sent by them. A behaviour of Navarch is a scene in testdata.
//
// Owns: nothing; it holds tests only.  Reads: everything.  Never: a socket; a clock that runs by itself.
package scene

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/testscript"

	_ "navarch.io/navarch/push/build/patch/envoytypes" // types that EnvoyFilters may name
	"navarch.io/navarch/push/envoytest"
)

var update = flag.Bool("update", false, "rewrite what `cmp stdout FILE` compares with in the scenes")

// The commands of scenes. Hosts may be written without .svc.cluster.local everywhere. Counts are since the last command
// that printed them, or since clear.
var commands = map[string]step{
	"apply":      (*stage).apply,      // FILE... [-FILE]...: into (or out of) the configuration folder, as one change; a folder: all of its files; shop/ is there. cluster=NAME/FILE keeps its folder
	"edit":       (*stage).edit,       // FILE OLD NEW [OLD NEW]...: replaces text of a file of the folder
	"remove":     (*stage).remove,     // FILE...
	"automatic":  (*stage).automatic,  // NAMESPACE/NAME [HOST=IP,IP]...: the leader has given a ServiceEntry these automatic addresses
	"resolved":   (*stage).resolved,   // NAME [IP]...: the leader has resolved a name to these addresses
	"keys":       (*stage).keys,       // NAMESPACE URI [TIMEOUT] FILE: the leader has fetched the key set in the file
	"many":       (*stage).many,       // N FILE [DURATION]: N copies, {{i}} replaced; one change each where they come apart
	"connect":    (*stage).connect,    // PROXY [NODE] [sotw] [prompt] [as=NAMESPACE/ACCOUNT]: a proxy joins and gets what there is; the latter: it answers before more is sent
	"disconnect": (*stage).disconnect, // PROXY: its stream ends; it keeps what it holds
	"reconnect":  (*stage).reconnect,  // PROXY: it comes back, and says what it holds
	"stall":      (*stage).stall,      // PROXY: acknowledges nothing
	"resume":     (*stage).resume,     // PROXY: acknowledges again
	"pause":      (*stage).pause,      // DURATION: time passes
	"settle":     (*stage).settleNow,  // waits until everything is planned and taken
	"clear":      (*stage).clear,      // starts all accounts again
	"expect":     (*stage).expect,     // PROXY TYPE [set=A,B] [drop=C] [responses=N]: exactly what was sent; * matches anything
	"nothing":    (*stage).nothing,    // PROXY: was sent (but for what expect has asked for)
	"builds":     (*stage).builds,     // [cluster=N] [endpoint=N] [listener=N] [route=N] [vhost=N]: exactly so many were drawn
	"plans":      (*stage).plans,      // [config=N] [endpoint=N]: lanes of plans made
	"writes":     (*stage).writes,     // N: records put and deleted in the store
	"shared":     (*stage).shared,     // [scopes=N] [variants=N] [workloads=N] [views=N] [proxies=N]
	"problems":   (*stage).problems,   // prints what is wrong with files, objects, and what they say together
	"show":       (*stage).show,       // PROXY cluster|endpoint|listener|route|secret [NAME]: prints what it holds, or the names
	"call":       (*stage).call,       // PROXY URL [METHOD] [to=IP[:PORT]] [HEADER=VALUE]...: prints what its Envoy would do with a request
	"receive":    (*stage).receive,    // PROXY URL [METHOD] [as=TD/ns/NS/sa/SA] [from=IP] [HEADER=VALUE]...: the same for a request that arrives, in the clear or by mTLS as an identity
	"talk":       (*stage).talk,       // PROXY FILE: FILE with what `call` or `receive` says under each of its lines "> call URL ..."
	"issue":      (*stage).issue,      // FILE NAMESPACE NAME [trust]: a Secret of fresh key material into the configuration folder
	"kek":        (*stage).kek,        // away|back: the key encryption key
	"stored":     (*stage).stored,     // NAMESPACE/NAME [CLUSTER]: prints what the store has of a Secret
	"ask":        (*stage).ask,        // PROXY [-]NAME...: subscribes to Secrets, or no longer
	"names":      (*stage).names,      // PROXY: prints the name table that its agent answers DNS by, for which it asks from now on
	"bootstrap":  (*stage).bootstrap,  // PROXY: prints what its agent is told to merge into its bootstrap
	"lead":       (*stage).lead,       // [isolation] [scoped]: another process becomes the leader, and compares everything; it isolates tenants, or Gateways are those of their namespace (of proxies that join later)
}

// Promise: security-tenants.md#take-traffic-or-weaken-policies, security-tenants.md#unknown-hosts-by-name
func TestScenes(t *testing.T) {
	shop, err := filepath.Abs(filepath.Join("testdata", "shop"))
	if err != nil {
		t.Fatal(err)
	}
	judge := envoytest.Binary(t)
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	for name, f := range commands {
		cmds[name] = f.run
	}
	testscript.RunT(bubble{t}, testscript.Params{
		Dir: "testdata", Cmds: cmds, UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			if err := os.CopyFS(filepath.Join(env.WorkDir, "shop"), os.DirFS(shop)); err != nil {
				return err
			}
			s, err := newStage(env.WorkDir, judge, false)
			if err != nil {
				return err
			}
			env.Values[stageKey{}] = s
			env.Defer(func() {
				for _, fault := range s.finish() {
					env.T().Log(fault)
					defer func() { env.T().FailNow() }()
				}
			})
			return nil
		},
	})
}

type stageKey struct{}

// bubble makes each scene run in time of its own.
type bubble struct{ *testing.T }

func (b bubble) Run(name string, f func(testscript.T)) {
	b.T.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(bubble{t}) })
	})
}

func (b bubble) Parallel() {}

func (b bubble) Verbose() bool { return testing.Verbose() }

// step is a command of a scene; the text is printed to stdout.
type step func(s *stage, args []string) (string, error)

func (f step) run(ts *testscript.TestScript, neg bool, args []string) {
	out, err := f(ts.Value(stageKey{}).(*stage), args)
	fmt.Fprint(ts.Stdout(), out)
	switch {
	case neg && err == nil:
		ts.Fatalf("no error")
	case neg:
		fmt.Fprintln(ts.Stderr(), err)
	case err != nil:
		ts.Fatalf("%v", err)
	}
}
