package member

import "fmt"

// LevelPath is the path of the blob (stored value) with the level of stored configuration. The level is the number of
// the format (model.Level). The leader writes the blob (shard/level). When a replica writes its record with the state
// Ready, it compares the stored level with the newest level that it reads.
const LevelPath = "level/current"

// LevelValue encodes a level as ten decimal digits, with leading zeros. Encoded levels sort like the numbers, so etcd
// can compare them.
func LevelValue(level uint32) []byte { return fmt.Appendf(nil, "%010d", level) }

// ParseLevel is the inverse of LevelValue. It returns 0 and an error if raw is not ten digits, or if the number exceeds
// 32 bits.
func ParseLevel(raw []byte) (uint32, error) {
	var level uint32
	if n, err := fmt.Sscanf(string(raw), "%010d", &level); n != 1 || err != nil || string(LevelValue(level)) != string(raw) {
		return 0, fmt.Errorf("level %q: want ten digits", raw)
	}
	return level, nil
}
