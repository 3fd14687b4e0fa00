"""Local files without a process for each of them.

Where Hadoop has no native library, which is everywhere that pip installed it, it starts a `chmod` for every file it
makes: three for each batch of a flow, some 6 ms of a core each. `LocalFiles.java` does it in the JVM. It is compiled by
Janino, which Spark brings to compile its queries, and takes the place of Hadoop's own class in the driver; why so, and
what else was tried: decision 18.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

SOURCE, NAME = "LocalFiles.java", "millpond.LocalFiles"
ROOT = "file:///"


def use_own_local_files(session: SparkSession) -> None:
    """Let this JVM make local files by our class; where it cannot be had, files are made as before, only slower."""
    jvm: Any = session._jvm
    usual = session.sparkContext._jsc.hadoopConfiguration()
    file_systems, root = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI(ROOT)
    try:
        kept = file_systems.get(root, usual)
        if kept.getClass().getName() == NAME:
            return
        ours = _configured(jvm, usual)
        # Hadoop keeps one file system for each scheme: it forgets one that is closed, and keeps the next one asked for.
        kept.close()
        file_systems.get(root, ours)
    except Py4JError:
        return


def _configured(jvm: Any, usual: Any) -> Any:
    """A configuration that names our class and finds it. The usual one, which goes to executors, is left alone: they do
    not have the class."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(__package__).joinpath(SOURCE).read_text())
    ours = jvm.org.apache.hadoop.conf.Configuration(usual)
    ours.setClassLoader(compiler.getClassLoader())
    ours.set("fs.file.impl", NAME)
    return ours
