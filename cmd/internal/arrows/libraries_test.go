package arrows

// only maps outside libraries that a single place may import to that place.
var only = map[string][]string{
	"go.etcd.io/etcd":              {"store/kv*", "store/lead"},
	"go.etcd.io/etcd/server":       {"store/kv/embedded"},
	"github.com/fsnotify/fsnotify": {"store/source/files"},
	"k8s.io/client-go":             {"store/apiserver", "store/apiserver/listwatch", "store/source/kube", "store/status", "cmd/navarchctl/cluster", "deploy/testcluster*", "loadtest/cluster"},
	"github.com/spf13/cobra":       {"cmd/*"},
	"github.com/vishvananda":       {"deploy/testcluster*", "deploy/redirect*"},
	"github.com/google/nftables":   {"deploy/redirect/kernel"},
	"k8s.io/cri-streaming":         {"deploy/testcluster*"},
	"k8s.io/metrics":               {"deploy/testcluster*"},
}
