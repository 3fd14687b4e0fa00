"""The tables of PostgreSQL's catalogs that clients ask for, and their columns."""

from __future__ import annotations

# Some have rows (`catalog.py`); the others exist for the queries of clients.
COLUMNS = {
    "pg_namespace": "oid nspname nspowner nspacl",
    "pg_class": """
        oid relname relnamespace reltype reloftype relowner relam relfilenode reltablespace relpages
        reltuples relallvisible reltoastrelid relhasindex relisshared relpersistence relkind relnatts
        relchecks relhasrules relhastriggers relhassubclass relrowsecurity relforcerowsecurity
        relispopulated relreplident relispartition relpartbound relacl reloptions relhasoids relfrozenxid
    """,
    "pg_attribute": """
        attrelid attname atttypid attlen attnum attndims atttypmod attbyval attalign attstorage attnotnull
        atthasdef atthasmissing attidentity attgenerated attisdropped attislocal attinhcount attcollation
        attacl attoptions attfdwoptions attstattarget attcompression
    """,
    "pg_type": """
        oid typname typnamespace typowner typlen typbyval typtype typcategory typispreferred typisdefined
        typdelim typrelid typelem typarray typinput typoutput typreceive typsend typnotnull typbasetype
        typtypmod typndims typcollation typdefault typsubscript
    """,
    "pg_index": """
        indexrelid indrelid indnatts indnkeyatts indisunique indisprimary indisexclusion indimmediate
        indisclustered indisvalid indcheckxmin indisready indislive indisreplident indkey indcollation
        indclass indoption indexprs indpred indnullsnotdistinct
    """,
    "pg_constraint": """
        oid conname connamespace contype condeferrable condeferred convalidated conrelid contypid conindid
        conparentid confrelid confupdtype confdeltype confmatchtype conislocal coninhcount connoinherit
        conkey confkey conbin
    """,
    "pg_database": """
        oid datname datdba encoding datlocprovider datistemplate datallowconn datconnlimit dattablespace
        datcollate datctype daticulocale datacl
    """,
    "pg_roles": """
        oid rolname rolsuper rolinherit rolcreaterole rolcreatedb rolcanlogin rolreplication rolconnlimit
        rolvaliduntil rolbypassrls rolconfig
    """,
    "pg_user": "usename usesysid usecreatedb usesuper userepl usebypassrls passwd valuntil useconfig",
    "pg_settings": """
        name setting unit category short_desc context vartype source min_val max_val enumvals boot_val
    """,
    "pg_tables": "schemaname tablename tableowner tablespace hasindexes hasrules hastriggers rowsecurity",
    "pg_views": "schemaname viewname viewowner definition",
    "pg_attrdef": "oid adrelid adnum adbin",
    "pg_description": "objoid classoid objsubid description",
    "pg_shdescription": "objoid classoid description",
    "pg_collation": "oid collname collnamespace collowner collprovider collencoding collcollate collctype",
    "pg_am": "oid amname amhandler amtype",
    "pg_inherits": "inhrelid inhparent inhseqno inhdetachpending",
    "pg_policy": "oid polname polrelid polcmd polpermissive polroles polqual polwithcheck",
    "pg_statistic_ext": "oid stxrelid stxname stxnamespace stxowner stxstattarget stxkeys stxkind",
    "pg_publication": "oid pubname pubowner puballtables pubinsert pubupdate pubdelete pubtruncate pubviaroot",
    "pg_publication_rel": "oid prpubid prrelid prqual prattrs",
    "pg_publication_namespace": "oid pnpubid pnnspid",
    "pg_trigger": "oid tgrelid tgparentid tgname tgfoid tgtype tgenabled tgisinternal tgconstrrelid tgconstraint",
    "pg_rewrite": "oid rulename ev_class ev_type ev_enabled is_instead ev_qual ev_action",
    "pg_proc": "oid proname pronamespace proowner prolang prokind prorettype proargtypes prosrc",
    "pg_depend": "classid objid objsubid refclassid refobjid refobjsubid deptype",
    "pg_enum": "oid enumtypid enumsortorder enumlabel",
    "pg_range": "rngtypid rngsubtype rngmultitypid rngcollation rngsubopc rngcanonical rngsubdiff",
    "pg_extension": "oid extname extowner extnamespace extrelocatable extversion",
    "pg_tablespace": "oid spcname spcowner spcacl spcoptions",
    "pg_foreign_table": "ftrelid ftserver ftoptions",
    "pg_foreign_server": "oid srvname srvowner srvfdw srvtype srvversion",
    "pg_sequence": "seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache seqcycle",
    "pg_stat_activity": "datid datname pid usename application_name state query",
    "pg_matviews": "schemaname matviewname matviewowner definition ispopulated",
    "pg_partitioned_table": "partrelid partstrat partnatts partdefid",
    "pg_event_trigger": "oid evtname evtevent evtowner evtfoid evtenabled",
    "pg_language": "oid lanname",
    "tables": "table_catalog table_schema table_name table_type is_insertable_into",
    "columns": """
        table_catalog table_schema table_name column_name ordinal_position column_default is_nullable
        data_type character_maximum_length numeric_precision numeric_scale datetime_precision udt_schema
        udt_name is_identity is_generated identity_generation
    """,
    "schemata": "catalog_name schema_name schema_owner",
    "views": "table_catalog table_schema table_name view_definition",
    "table_constraints": """
        constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name
        constraint_type
    """,
    "key_column_usage": """
        constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name
        column_name ordinal_position
    """,
}
INFORMATION = frozenset({"tables", "columns", "schemata", "views", "table_constraints", "key_column_usage"})
