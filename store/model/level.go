package model

// Level is the newest extension of the stored format that this build reads; it reads all earlier levels too. A kind of
// record that earlier builds do not know belongs to a new level. The level in use is one key of the store: the highest
// level that every replica reads. So no two replicas serve different configuration because one of them skips an unknown
// kind (shard/level).
const Level = 1

// levels contains the level of each kind that some builds do not know. Kinds with 0 are stored at every level.
var levels = [NumKinds]uint32{}

// LevelOf returns the level from which on records of a kind are stored. It is 0 for closing kinds: a replica that does
// not know one takes no new streams of the proxies that the record covers, and a replica that knows it enforces it.
func LevelOf(kind Kind) uint32 {
	if kind >= NumKinds || Marks[kind] == Closing {
		return 0
	}
	return levels[kind]
}
